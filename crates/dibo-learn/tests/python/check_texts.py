"""Compares what onnxruntime makes of texts by the `model.onnx` of a trained BERT with what `dibo predict` does.

    dibo clean site.csv --text review --bert BERT --model bert …
    dibo predict cleaned rows.csv --text review --bert BERT --out predicted.csv
    python crates/dibo-learn/tests/python/check_texts.py cleaned rows.csv review BERT predicted.csv

Needs onnxruntime, tokenizers and numpy. Prints the largest difference of a probability; fails if it is more
than 1e-5. (`dibo predict` writes six digits.)
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

BATCH = 32


def main():
    model, rows, column, bert, predicted = sys.argv[1:]
    session = onnxruntime.InferenceSession(Path(model) / "model.onnx", providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    classes, widths = json.loads(metadata["classes"]), json.loads(metadata["widths"])
    tokenizer = Tokenizer.from_file(str(Path(bert) / "tokenizer.json"))
    tokenizer.enable_truncation(widths[0])
    tokenizer.enable_padding()
    texts = [row[column] for row in csv.DictReader(open(rows, encoding="utf-8"))]
    said = list(csv.DictReader(open(predicted, encoding="utf-8")))
    assert len(texts) == len(said), (len(texts), len(said))
    worst, others, lengths = 0.0, 0, set()
    for start in range(0, len(texts), BATCH):
        batch = tokenizer.encode_batch(texts[start : start + BATCH])
        lengths |= {sum(text.attention_mask) for text in batch}
        inputs = {
            "input_ids": np.array([text.ids for text in batch], np.int64),
            "attention_mask": np.array([text.attention_mask for text in batch], np.int64),
        }
        probabilities, labels = session.run(["probabilities", "label"], inputs)
        for row, label, own in zip(probabilities, labels, said[start:]):
            found = float(row[classes.index(own["predicted_label"])])
            worst = max(worst, abs(found - float(own["probability"])))
            others += classes[label] != own["predicted_label"]
    print(f"{len(texts)} texts of {min(lengths)} to {max(lengths)} tokens")
    print(f"probabilities: at most {worst:.3g}; {others} classes differ")
    if worst > 1e-5:
        sys.exit("differences of more than 1e-5")


if __name__ == "__main__":
    main()
