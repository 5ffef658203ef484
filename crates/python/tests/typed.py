"""A program that uses girih, for the check of its types; it is not run."""

import numpy as np

import girih

data: girih.Dataset = girih.load("synth:planted,nodes=100,degree=4,features=8,classes=3")
graph, new_ids = data.graph.reorder("community")
sampler = girih.Sampler(graph, [5, 5], draws="labor")
edges: int = sampler.sample(np.arange(10), seed=1).edge_index.shape[1]
for batch in girih.NeighborLoader(sampler, np.arange(100), batch_size=10, features=data.features):
    width: int = 0 if batch.x is None else batch.x.shape[1]
outcome = girih.train(data, model="gcn", epochs=2)
best: int = outcome.runs[0].best_epoch
weights = outcome.parameters("pyg")["convs.0.lin.weight"]
