"""Products of matrices at sizes of no power of two, and what stands around them."""
import torch
import torch.nn.functional as F

from families import program

for name in ("odd", "batched_7x13", "matvec", "inner_long", "f64"):
    program("product/" + name)(torch.matmul)
program("product/odd_bf16")(lambda a, b: F.gelu(a @ b))
program("product/batched_3x3_chain")(lambda a, b, v: (a @ b @ v[..., None])[..., 0])
program("product/vecmat")(lambda a, v: v @ a)
program("product/skinny")(lambda a, b: F.relu(a @ b))
program("product/tall_gram")(lambda a: a.t() @ a / a.shape[0])
program("product/einsum_heads")(lambda a, b: torch.einsum("bihd,bjhd->bhij", a, b))
program("product/three_factors")(lambda a, b, c: a @ b @ c)
program("product/bilinear")(F.bilinear)
program("product/complex")(lambda a, b, c, d: (a @ c - b @ d, a @ d + b @ c))
program("product/complex_interleaved")(lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)))
program("product/low_rank_train", gradients=(2, 3))(
    lambda x, w, a, b, y: F.mse_loss(F.linear(x, w) + F.linear(F.linear(x, a), b) * 2, y))
program("product/tensordot")(lambda a, b: torch.tensordot(a, b, ([1, 2], [1, 0])))


@program("product/normalized_similarity")
def similarity(a, b):
    s = F.normalize(a) @ F.normalize(b).t()
    return s.amax(1), s.argmax(0)


@program("product/power_iteration")
def power_iteration(a, v):
    for _ in range(4):
        u = a @ v
        u = u / (torch.linalg.vector_norm(u) + 1e-12)
        v = u @ a
        v = v / (torch.linalg.vector_norm(v) + 1e-12)
    return a / torch.dot(u, a @ v)
