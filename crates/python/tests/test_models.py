"""Models of `girih.nn` against PyG's: results, gradients, state dicts, and one call against layer by layer."""

import numpy as np
import pytest
from nn_layers import WIDTH, agree, blocks_of, close, gnn, pyg, random_edges, torch

import girih

BETWEEN = {
    "plain": {},
    "wide": {"hidden_channels": 40},
    "one": {"num_layers": 1},
    "two": {"num_layers": 2},
    "no out": {"out_channels": None},
    "last": {"jk": "last"},
    "cat": {"jk": "cat"},
    "max": {"jk": "max", "num_layers": 2},
    "elu": {"act": "elu"},
    "linear": {"act": None},
    "norm": {"norm": torch.nn.LayerNorm(16)},
    "act first": {"norm": torch.nn.LayerNorm(16), "act_first": True},
}
OF = {
    "GCN": [{}, {"bias": False}, {"improved": True}, {"cached": True}],
    "GraphSAGE": [{}, {"aggr": "sum"}, {"project": True}, {"root_weight": False}],
    "GAT": [{}, {"heads": 4}, {"v2": True, "heads": 2}],
}


def models(name: str, options: dict):
    """A model here and PyG's, with parameters handed over both ways."""
    given = {"in_channels": WIDTH, "hidden_channels": 16, "num_layers": 3, "out_channels": 5, **options}
    torch.manual_seed(0)
    ours, theirs = getattr(gnn, name)(**given), getattr(pyg, name)(**given)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("name", OF)
@pytest.mark.parametrize("between", BETWEEN)
def test_models_equal_those_of_pyg(name, between):
    edges = random_edges(3)
    graph = girih.from_edge_index(edges.numpy(), 150)
    for options in OF[name]:
        ours, theirs = models(name, BETWEEN[between] | options)
        agree(ours, theirs, (graph,), (edges,), [torch.randn(150, WIDTH)], bound=2e-5)


@pytest.mark.parametrize("name", OF)
def test_blocks_are_read_by_layer(name):
    blocks, x = blocks_of(1, fan_out=(4, 3, 2))
    for options in OF[name]:
        if options.get("cached"):
            continue
        model, _ = models(name, options)
        if name == "GCN":
            model.convs.apply(lambda conv: setattr(conv, "normalize", "sampled") if hasattr(conv, "normalize") else None)
        expected = x
        for at, (conv, block) in enumerate(zip(model.convs, blocks)):
            expected = conv(expected, block)
            expected = expected.relu() if at < 2 else expected
        close(model(x, blocks), expected)
        with pytest.raises(ValueError, match="2 blocks for 3 layers"):
            model(x, blocks[1:])


def test_edges_have_weights_and_features():
    edges = random_edges(3)
    graph = girih.from_edge_index(edges.numpy(), 150)
    x = torch.randn(150, WIDTH)
    for name, options, given in (
        ("GCN", {}, {"edge_weight": torch.rand(edges.shape[1]) + 0.1}),
        ("GAT", {"edge_dim": 2, "heads": 2}, {"edge_attr": torch.randn(edges.shape[1], 2)}),
    ):
        ours, theirs = models(name, options)
        close(ours(x, graph, **given), theirs(x, edges, **given), 2e-5)
        assert not torch.allclose(ours(x, graph), ours(x, graph, **given), atol=1e-3)
    with pytest.raises(ValueError, match="takes no edge_weight"):
        gnn.GraphSAGE(WIDTH, 8, 2)(x, graph, torch.rand(edges.shape[1]))
    blocks, own = blocks_of(1)
    with pytest.raises(ValueError, match="not for blocks"):
        gnn.GCN(WIDTH, 8, 2)(own, blocks, torch.rand(3))


def test_dropout_masks_the_forward_and_the_backward_pass_alike():
    graph = girih.from_edge_index(random_edges(3).numpy(), 150)
    model = gnn.GraphSAGE(WIDTH, 64, 2, 3, dropout=0.5).double().float()
    x = torch.randn(150, WIDTH, requires_grad=True)
    torch.manual_seed(1)
    first = model(x, graph)
    torch.manual_seed(1)
    assert torch.equal(first, model(x, graph))
    assert not torch.equal(first, model(x, graph))
    # The derivative along a direction, by differences: the mask is that of the seed.
    direction = torch.randn_like(x)
    torch.manual_seed(1)
    (of_x,) = torch.autograd.grad(model(x, graph).sum(), x)

    def at(step):
        torch.manual_seed(1)
        return model(x.detach() + step * direction, graph).double().sum().item()

    by_difference = (at(1e-3) - at(-1e-3)) / 2e-3
    assert (of_x * direction).sum().item() == pytest.approx(by_difference, rel=2e-2)
    model.eval()
    assert torch.equal(model(x, graph), model(x, graph))


def test_a_share_of_hidden_values_is_dropped():
    graph = girih.from_edge_index(np.array([[0], [0]]), 1)
    model = gnn.GCN(4, 20_000, 1, jk="last", out_channels=1, dropout=0.25)
    with torch.no_grad():
        model.convs[0].lin.weight.zero_()
        model.convs[0].bias.fill_(1.0)
        model.lin.weight.fill_(1.0)
        model.lin.bias.zero_()
        mean = model(torch.zeros(1, 4), graph).item() / 20_000
    assert 0.97 < mean < 1.03


def test_what_models_do_not_take_is_told():
    cases = [
        (lambda: gnn.GCN(-1, 8, 0), ValueError, "num_layers is 0"),
        (lambda: gnn.GCN((3, 4), 8, 2), NotImplementedError, "one width"),
        (lambda: gnn.GCN(4, 8, 2, jk="lstm"), NotImplementedError, "lstm"),
        (lambda: gnn.GCN(4, 8, 2, norm="batch_norm"), NotImplementedError, "takes a module"),
        (lambda: gnn.GCN(4, 8, 2, act="swish"), NotImplementedError, "swish"),
        (lambda: gnn.GraphSAGE(4, 8, 2, aggr="max"), NotImplementedError, "max"),
        (lambda: gnn.GAT(4, 9, 2, heads=2), ValueError, "multiple of heads"),
        (lambda: gnn.GCN(4, 8, 2)(torch.randn(3, 5), random_edges(0)), ValueError, "5 columns"),
    ]
    for make, error, message in cases:
        with pytest.raises(error, match=message):
            make()


def test_a_pass_is_freed_with_its_graph():
    graph = girih.from_edge_index(random_edges(3).numpy(), 150)
    model, x = gnn.GraphSAGE(WIDTH, 16, 2, 3), torch.randn(150, WIDTH)
    loss = model(x, graph).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    loss = model(x, graph).sum()
    loss.backward(retain_graph=True)
    before = [parameter.grad.clone() for parameter in model.parameters()]
    loss.backward()
    for parameter, once in zip(model.parameters(), before):
        close(parameter.grad - once, once / 2, bound=1e-4)
    loss = model(x, graph).sum()
    with torch.no_grad():
        model.convs[0].lin_l.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = model(x, graph).sum()
    model.convs[0].lin_l.weight.data = model.convs[0].lin_l.weight.detach().clone()
    with pytest.raises((RuntimeError, ValueError), match="other memory|inplace"):
        loss.backward()
