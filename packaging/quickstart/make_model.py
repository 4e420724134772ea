#!/usr/bin/env python3
"""Writes a tiny language model in GGUF format: make_model.py OUT [--layers N] ...

The weights are random numbers from a fixed seed, so the model knows nothing, but everything a
KV cache depends on is real: the llama architecture, a tokenizer, and the KV geometry of a
Llama 3 8B model (128 KiB per token with the defaults). The hidden size is small, which keeps
the file under 20 MB and the arithmetic cheap. Needs nothing outside Python's standard library,
and two runs write the same bytes.
"""

import argparse
import dataclasses
import os
import random
import struct

# Numbers of the GGUF format (version 3).
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
TENSOR_F32, TENSOR_F16 = 0, 1
ALIGNMENT = 32

TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_BYTE = 1, 2, 3, 6

# Powers of two that scale the random weights. Queries and keys are large, so that attention
# picks out single tokens, and the embedding is small against what attention adds: the next
# token then depends on the cached keys and values, and a damaged cache changes the answer.
SCALE_ATTENTION = -1
SCALE_EMBEDDING = -6
SCALE_OTHER = -4
HALF_FLOAT_BIAS = 15


@dataclasses.dataclass
class Shape:
    layers: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    embedding: int = 32
    feed_forward: int = 32
    context: int = 16384

    def kv_bytes_per_token(self):
        return self.layers * self.kv_heads * self.head_dim * 2 * 2  # K and V, two bytes each


def vocabulary():
    """(text, type) of every token: specials, all bytes, printable ASCII, the SPM space."""
    tokens = [("<unk>", TOKEN_UNKNOWN), ("<s>", TOKEN_CONTROL), ("</s>", TOKEN_CONTROL)]
    tokens += [(f"<0x{byte:02X}>", TOKEN_BYTE) for byte in range(256)]
    tokens += [(chr(code), TOKEN_NORMAL) for code in range(33, 127)]
    tokens += [("\u2581", TOKEN_NORMAL)]
    return tokens


def pack_string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pack_array(item_type, count, items):
    return struct.pack("<IIQ", ARRAY, item_type, count) + items


def metadata(shape, tokens):
    def u32(value):
        return struct.pack("<II", U32, value)

    def text(value):
        return struct.pack("<I", STRING) + pack_string(value)

    heads, count = shape.kv_heads, len(tokens)
    return {
        "general.architecture": text("llama"),
        "general.name": text("random-tiny"),
        "general.file_type": u32(1),
        "llama.vocab_size": u32(count),
        "llama.context_length": u32(shape.context),
        "llama.block_count": u32(shape.layers),
        "llama.embedding_length": u32(shape.embedding),
        "llama.feed_forward_length": u32(shape.feed_forward),
        "llama.attention.head_count": u32(heads),
        "llama.attention.head_count_kv": u32(heads),
        "llama.attention.key_length": u32(shape.head_dim),
        "llama.attention.value_length": u32(shape.head_dim),
        "llama.attention.layer_norm_rms_epsilon": struct.pack("<If", F32, 1e-5),
        "llama.rope.dimension_count": u32(shape.head_dim),
        "tokenizer.ggml.model": text("llama"),
        "tokenizer.ggml.tokens":
            pack_array(STRING, count, b"".join(pack_string(t) for t, _ in tokens)),
        "tokenizer.ggml.scores":
            pack_array(F32, count, struct.pack(f"<{count}f", *(-i for i in range(count)))),
        "tokenizer.ggml.token_type":
            pack_array(I32, count, struct.pack(f"<{count}i", *(kind for _, kind in tokens))),
        "tokenizer.ggml.unknown_token_id": u32(0),
        "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
    }


def tensors(shape, vocabulary_size):
    """(name, dimensions with the fastest first, type), in file order."""
    width, inner = shape.embedding, shape.kv_heads * shape.head_dim
    yield "token_embd.weight", (width, vocabulary_size), TENSOR_F16
    for layer in range(shape.layers):
        for name, dims, kind in (
            ("attn_norm", (width,), TENSOR_F32),
            ("attn_q", (width, inner), TENSOR_F16),
            ("attn_k", (width, inner), TENSOR_F16),
            ("attn_v", (width, inner), TENSOR_F16),
            ("attn_output", (inner, width), TENSOR_F16),
            ("ffn_norm", (width,), TENSOR_F32),
            ("ffn_gate", (width, shape.feed_forward), TENSOR_F16),
            ("ffn_up", (width, shape.feed_forward), TENSOR_F16),
            ("ffn_down", (shape.feed_forward, width), TENSOR_F16),
        ):
            yield f"blk.{layer}.{name}.weight", dims, kind
    yield "output_norm.weight", (width,), TENSOR_F32
    yield "output.weight", (width, vocabulary_size), TENSOR_F16


def random_halves(rng, count, exponent):
    """`count` half floats of random sign and mantissa, from 2^exponent to 2^(exponent + 1)."""
    def repeat(pattern):
        return int.from_bytes(struct.pack("<H", pattern) * count, "little")

    sign_and_mantissa = rng.getrandbits(16 * count) & repeat(0x83FF)
    bits = sign_and_mantissa | repeat((exponent + HALF_FLOAT_BIAS) << 10)
    return bits.to_bytes(2 * count, "little")


def output_rows(rng, width, tokens):
    """Only letters and the space can win: the answer is always printable."""
    rows = []
    for text, kind in tokens:
        row = random_halves(rng, width, SCALE_OTHER)
        wanted = kind == TOKEN_NORMAL and (text.islower() or text == "\u2581")
        rows.append(row if wanted else bytes(2 * width))
    return b"".join(rows)


def tensor_data(rng, name, dims, kind, tokens):
    count = 1
    for dim in dims:
        count *= dim
    if kind == TENSOR_F32:
        return struct.pack("<f", 1.0) * count
    if name == "output.weight":
        return output_rows(rng, dims[0], tokens)
    if "attn_q" in name or "attn_k" in name:
        return random_halves(rng, count, SCALE_ATTENTION)
    return random_halves(rng, count, SCALE_EMBEDDING if "embd" in name else SCALE_OTHER)


def padding(size):
    return bytes(-size % ALIGNMENT)


def build(shape, seed):
    """The whole file as bytes."""
    rng = random.Random(seed)
    tokens = vocabulary()
    listing, body, offset = [], [], 0
    for name, dims, kind in tensors(shape, len(tokens)):
        data = tensor_data(rng, name, dims, kind, tokens)
        data += padding(len(data))
        listing.append(pack_string(name) + struct.pack("<I", len(dims)) +
                       struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset))
        body.append(data)
        offset += len(data)
    pairs = metadata(shape, tokens)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listing), len(pairs))
    head += b"".join(pack_string(key) + value for key, value in pairs.items())
    head += b"".join(listing)
    return head + padding(len(head)) + b"".join(body)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    for field in dataclasses.fields(Shape):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=int, default=field.default)
    args = parser.parse_args()
    shape = Shape(**{f.name: getattr(args, f.name) for f in dataclasses.fields(Shape)})
    data = build(shape, args.seed)
    part = args.out + ".part"  # never leave half a model under the final name
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, args.out)
    print(f"{args.out}: {len(data) / 1e6:.1f} MB, "
          f"KV cache {shape.kv_bytes_per_token() // 1024} KiB per token")


if __name__ == "__main__":
    main()
