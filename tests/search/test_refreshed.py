"""A collection that stays open: `refreshed` sees what changed, and questions can be asked meanwhile."""

import threading

from quoth.search import open_collection
from search.test_index import fill, search


def test_a_long_lived_process_sees_changes(tmp_path):
    """`refreshed` gives what a new process finds, and the old collection can be asked meanwhile from other threads."""
    folder = fill(tmp_path)
    old = open_collection([str(folder)])
    assert old.refreshed() is old
    before = search(old)
    kept = old.document(0)
    (folder / "new.txt").write_text("The heron of Stornvik stands here.\n")
    ended, wrong = threading.Event(), []

    def ask():
        while not ended.is_set():
            try:
                one = old.best("Where do herons stand?", 25)[0]
                assert old.document(one.document).text[one.begin : one.past]
            except Exception as error:
                wrong.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    new = old.refreshed()
    ended.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(new) == len(old) + 1
    assert search(new) == search(open_collection([str(folder)], use_index=False))
    assert search(new) != before
    assert (old.document(0).name, old.document(0).text) == (kept.name, kept.text)
    assert new.refreshed() is new


def test_changes_of_files_and_of_several_paths(tmp_path):
    folder, alone = tmp_path / "folder", tmp_path / "alone.txt"
    fill(folder)
    alone.write_text("A heron.\n")
    both = open_collection([str(folder), str(alone)])
    assert both.refreshed() is both
    alone.write_text("A heron and a gull.\n")
    again = both.refreshed()
    assert again is not both
    assert again.document(len(again) - 1).text.strip() == "A heron and a gull."
    assert open_collection([str(alone)], use_index=False).refreshed().document(0).text.strip() == "A heron and a gull."
