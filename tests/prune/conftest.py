import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
