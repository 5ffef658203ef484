"""Links in time, such as messages: each is predicted from earlier ones alone. PyG's loop; the loader is girih's.

    python links_in_time.py --data messages.csv     # with columns source, target and time
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import girih
import girih.pyg


def messages(path):
    """Edges and their times: of a file, or drawn between people of four groups, most of them inside one."""
    if path != "drawn":
        graph = girih.load(path, times=True, symmetrize=False).timed_graph
        return torch.from_numpy(graph.edge_index()), torch.from_numpy(graph.times()), graph.num_nodes
    writer = torch.randint(100, (5000,))
    reader = torch.where(torch.rand(5000) < 0.9, (writer + 4 * torch.randint(25, (5000,))) % 100, torch.randint(100, (5000,)))
    return torch.stack([writer, reader]), torch.arange(5000), 100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="drawn")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    torch.manual_seed(0)
    edge_index, time, n = messages(options.data)
    data = Data(x=torch.randn(n, 32), edge_index=edge_index, time=time)
    last = time >= time.sort().values[int(0.85 * len(time))]
    graph = girih.pyg.timed_graph_of(data, "time")

    def loader(chosen, shuffle):
        # The line that changes: LinkNeighborLoader is girih's. before=True hides the link itself, too.
        return girih.pyg.LinkNeighborLoader(
            data, [10, 5], edge_index[:, chosen], edge_label_time=time[chosen], time_attr="time", graph=graph,
            temporal_strategy="last", before=True, neg_sampling="binary", batch_size=256, shuffle=shuffle,
        )  # fmt: skip

    model = GraphSAGE(32, 64, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(options.epochs):
        for chosen in (~last, last):
            right, count = 0.0, 0
            for batch in loader(chosen, shuffle=chosen is not last):
                h = model(batch.x, batch.edge_index)
                scores = (h[batch.edge_label_index[0]] * h[batch.edge_label_index[1]]).sum(-1)
                if chosen is not last:
                    optimizer.zero_grad()
                    F.binary_cross_entropy_with_logits(scores, batch.edge_label).backward()
                    optimizer.step()
                right, count = right + float(((scores > 0) == (batch.edge_label > 0)).sum()), count + len(scores)
        print(f"epoch {epoch}: told right of the last links {right / count:.3f}")


if __name__ == "__main__":
    main()
