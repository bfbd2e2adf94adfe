from __future__ import annotations

import socket
import threading

import pytest

from halide_backend.build import frames


def test_messages_arrive_whole_and_in_order() -> None:
    here, there = socket.socketpair()
    body = bytes(range(256)) * 40_000  # more than a socket holds
    sent = [({"kind": "first"}, b""), ({"kind": "second", "n": [1, None]}, body)]
    with here, there:
        sender = threading.Thread(target=lambda: [frames.send(there, *each) for each in sent])
        sender.start()
        assert [frames.receive(here), frames.receive(here)] == sent
        sender.join()


@pytest.mark.parametrize("kept", [0, 1, 10, 20, 40])
def test_a_cut_message_is_broken(kept: int) -> None:
    here, there = socket.socketpair()
    with here:
        with there:
            frames.send(there, {"kind": "kernel"}, b"x" * 30)
            whole = here.recv(1000)
            there.sendall(whole[:kept])
        with pytest.raises(frames.Broken):
            frames.receive(here)


def test_a_cut_message_with_another_behind_it_is_broken() -> None:
    here, there = socket.socketpair()
    with here, there:
        frames.send(there, {"kind": "kernel"}, b"x" * 30)
        whole = here.recv(1000)
        there.sendall(whole[:-8])
        frames.send(there, {"kind": "died"})
        with pytest.raises(frames.Broken):
            frames.receive(here)
