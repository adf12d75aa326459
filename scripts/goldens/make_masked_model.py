"""Writes tests/goldens/models/tiny-masked/: a tiny BERT with a masked-language head and its own WordPiece tokenizer,
trained on a few sentences, so that it fills in some words and not others.

Usage: make_masked_model.py
"""

import random
import shutil

import torch
from provenance import ROOT
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

FOLDER = ROOT / "models" / "tiny-masked"
PEOPLE = ["the farmer", "a teacher", "the old captain", "my neighbour", "a young doctor"]
DEEDS = ["planted", "painted", "repaired", "carried", "forgot", "remembered"]
THINGS = ["apple trees", "wooden boats", "the garden fence", "heavy suitcases", "every window", "many letters"]
PLACES = ["behind the house", "near the harbour", "before the winter", "in the morning", "without any help"]


def sentences(rng, count):
    for _ in range(count):
        yield f"{rng.choice(PEOPLE)} {rng.choice(DEEDS)} {rng.choice(THINGS)} {rng.choice(PLACES)}.".capitalize()


def train_tokenizer():
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    letters = " ".join("abcdefghijklmnopqrstuvwxyz") + " 0 1 2 3 4 5 6 7 8 9 . , ' ` ( ) - : ; ! ? $ % # @ & / \\" + '"'
    corpus = list(sentences(random.Random(1), 400)) + [letters, "".join(c for c in letters if c.isalnum())] * 4
    tokenizer.train_from_iterator(corpus, vocab_size=260, min_frequency=2, show_progress=False)
    return tokenizer


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    tokenizer = BertTokenizerFast(tokenizer_object=train_tokenizer()._tokenizer, model_max_length=512)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    rng = random.Random(2)
    for step in range(400):
        # Two sentences at a time: half of the time the second repeats the first, so that context helps.
        pairs = [[s, s if rng.random() < 0.5 else t] for s, t in zip(sentences(rng, 24), sentences(rng, 24))]
        batch = tokenizer([" ".join(pair) for pair in pairs], padding=True, return_tensors="pt")
        ids, labels = batch["input_ids"].clone(), batch["input_ids"].clone()
        chosen = (torch.rand(ids.shape) < 0.25) & (ids > 4)
        labels[~chosen] = -100
        ids[chosen] = tokenizer.mask_token_id
        loss = model(ids, attention_mask=batch["attention_mask"], labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(step, float(loss.detach()))
    model.save_pretrained(FOLDER)
    # As in published files.
    frame = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.backend_tokenizer.post_processor = frame
    tokenizer.save_pretrained(FOLDER)
    for name in ("special_tokens_map.json", "vocab.txt"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
