"""Check what a world promises on every rank of one that PyTorch connects."""

from freetrain.elastic.torch_world import torch_world
from tests.elastic.world_contract import check_world

if __name__ == "__main__":
    with torch_world(backend="gloo") as world:
        check_world(world)
