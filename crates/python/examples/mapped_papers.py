"""GraphSAGE on a data set larger than memory, as papers100M is: graph and features are mapped, and read as batches need them.

    girih convert --data papers100M --out papers
    python mapped_papers.py --data papers
"""

import argparse
import tempfile

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import girih
import girih.pyg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synth:planted,nodes=5000,degree=12", help="folder of girih, or a SPEC")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        if options.data.startswith("synth:"):
            girih.load(options.data).save(f"{folder}/data")
            options.data = f"{folder}/data"
        dataset = girih.load(options.data)
        train_ids, _, _ = dataset.split
        data = Data(y=torch.from_numpy(dataset.y), num_nodes=dataset.graph.num_nodes)
        # The line that changes: graph= and x= are the mapped ones, and `data` has neither edge_index nor x.
        loader = girih.pyg.NeighborLoader(
            data, [15, 10], train_ids, graph=dataset.graph, x=dataset.features, edge_ids=False,
            batch_size=options.batch_size, shuffle=True, threads=options.threads,
        )  # fmt: skip
        print(f"graph mapped: {dataset.graph.is_mapped}; {dataset.features}")
        model = GraphSAGE(dataset.features.shape[1], 64, 2, dataset.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for number, batch in zip(range(options.batches), loader):
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            print(f"batch {number}: loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
