"""`LightGCN`: embeddings of users and items for recommendation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._adjacency import Adjacency, GraphLike, adjacency
from ._convolutions import LGConv
from .._girih import Graph


class LightGCN(torch.nn.Module):
    """LightGCN of He et al. (SIGIR 2020), with the arguments, parameters and methods of PyG's model.

    alpha: weight of each of the num_layers + 1 embeddings in the sum; a number, or one for each. Default: their mean.
    """

    alpha: Tensor

    def __init__(
        self, num_nodes: int, embedding_dim: int, num_layers: int, alpha: float | Tensor | None = None, **kwargs: Any
    ) -> None:
        super().__init__()
        self.num_nodes, self.embedding_dim, self.num_layers = num_nodes, embedding_dim, num_layers
        if not isinstance(alpha, Tensor):
            alpha = torch.full((num_layers + 1,), 1.0 / (num_layers + 1) if alpha is None else float(alpha))
        if alpha.shape != (num_layers + 1,):
            raise ValueError(f"alpha has shape {tuple(alpha.shape)}; give one weight for each of {num_layers + 1} embeddings")
        self.register_buffer("alpha", alpha)
        self.embedding = torch.nn.Embedding(num_nodes, embedding_dim)
        self.convs = torch.nn.ModuleList([LGConv(**kwargs) for _ in range(num_layers)])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new embeddings."""
        torch.nn.init.xavier_uniform_(self.embedding.weight)

    def get_embedding(self, graph: GraphLike, edge_weight: Tensor | None = None) -> Tensor:
        """Embeddings (num_nodes, embedding_dim) of all nodes."""
        graph = adjacency(graph, self.num_nodes)
        x: Tensor = self.embedding.weight
        out = x * self.alpha[0]
        for at, conv in enumerate(self.convs, 1):
            x = conv(x, graph, edge_weight)
            out = out + x * self.alpha[at]
        return out

    def forward(self, graph: GraphLike, edge_label_index: Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """Scores (n,) of the pairs `edge_label_index` (2, n); by default of all edges of the graph."""
        if edge_label_index is None:
            if isinstance(graph, Adjacency):
                raise ValueError("edge_label_index is missing: an Adjacency does not list its edges")
            pairs: Any = torch.from_numpy(graph.edge_index()).to(self.alpha.device) if isinstance(graph, Graph) else graph
            edge_label_index = pairs
        out = self.get_embedding(graph, edge_weight)
        return (out[edge_label_index[0]] * out[edge_label_index[1]]).sum(dim=-1)

    def predict_link(
        self,
        graph: GraphLike,
        edge_label_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        prob: bool = False,
    ) -> Tensor:
        """Probabilities (n,) of pairs if `prob`, else 0 or 1."""
        scores: Tensor = self(graph, edge_label_index, edge_weight).sigmoid()
        return scores if prob else scores.round()

    def recommend(
        self,
        graph: GraphLike,
        edge_weight: Tensor | None = None,
        src_index: Tensor | None = None,
        dst_index: Tensor | None = None,
        k: int = 1,
        sorted: bool = True,
    ) -> Tensor:
        """The k best of the nodes `dst_index` for each of the nodes `src_index`: (sources, k) ids. Default: all nodes."""
        out = self.get_embedding(graph, edge_weight)
        sources = out if src_index is None else out[src_index]
        destinations = out if dst_index is None else out[dst_index]
        best = (sources @ destinations.t()).topk(k, dim=-1, sorted=sorted).indices
        return best if dst_index is None else dst_index[best]

    def link_pred_loss(self, pred: Tensor, edge_label: Tensor, **kwargs: Any) -> Tensor:
        """Loss of link prediction: binary cross entropy; `kwargs` are those of `torch.nn.BCEWithLogitsLoss`."""
        loss: Tensor = torch.nn.BCEWithLogitsLoss(**kwargs)(pred, edge_label.to(pred.dtype))
        return loss

    def recommendation_loss(
        self, pos_edge_rank: Tensor, neg_edge_rank: Tensor, node_id: Tensor | None = None, lambda_reg: float = 1e-4
    ) -> Tensor:
        """Loss of recommendation: Bayesian personalised ranking of pairs of scores (n,), with a penalty on the embeddings of
        `node_id`; by default of all nodes."""
        embeddings = self.embedding.weight if node_id is None else self.embedding.weight[node_id]
        penalty: Tensor = lambda_reg * embeddings.norm(p=2).pow(2) / pos_edge_rank.shape[0]
        return penalty - F.logsigmoid(pos_edge_rank - neg_edge_rank).mean()

    def extra_repr(self) -> str:
        return f"{self.num_nodes}, {self.embedding_dim}, num_layers={self.num_layers}"
