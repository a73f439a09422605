#include "backend/cuda/target.h"

#include "support/fail.h"
#include "support/hash.h"

namespace egret::backend::cuda {

std::string CudaTarget::arch() const {
  return fmt::format("sm_{}{}", capability, specific ? "a" : "");
}

namespace {

// From NVIDIA's table of compute capabilities (CUDA programming guide) and the data sheets.
struct Known {
  int capability, multiprocessors;
  std::int64_t shared_multiprocessor, shared_block;
  int threads, blocks;
  std::int64_t l2;
};
constexpr Known kKnown[] = {
    {80, 108, 164 << 10, 163 << 10, 2048, 32, 40 << 20},
    {86, 84, 100 << 10, 99 << 10, 1536, 16, 6 << 20},
    {89, 128, 100 << 10, 99 << 10, 1536, 24, 72 << 20},
    {90, 132, 228 << 10, 227 << 10, 2048, 32, 50 << 20},
    {100, 148, 228 << 10, 227 << 10, 2048, 32, 126 << 20},
    {120, 170, 100 << 10, 99 << 10, 1536, 24, 96 << 20},
};

} // namespace

kernel::Target known_target(int capability) {
  if (capability < 80)
    fail(ErrorKind::Value,
         "cuda: compute capability {}.{} is not supported: 8.0 or later is needed", capability / 10,
         capability % 10);
  const Known* known = kKnown;
  for (const Known& k : kKnown)
    if (k.capability <= capability)
      known = &k;
  kernel::Target t;
  t.device = "cuda";
  t.capability = capability;
  t.workers = known->multiprocessors;
  t.warp = 32;
  t.vector_bytes = 16;
  t.vector_registers = 255;
  t.has_fma = true;
  t.has_bf16_dot = true;
  t.l1_bytes = t.shared_bytes = known->shared_multiprocessor;
  t.block_shared_bytes = known->shared_block;
  t.registers = 65536;
  t.threads = known->threads;
  t.blocks = known->blocks;
  t.l2_bytes = t.l3_bytes = known->l2;
  name_target(t, 0);
  return t;
}

CudaTarget cuda_target(const kernel::Target& target) {
  if (target.device != "cuda" || target.capability < 80)
    fail(ErrorKind::Value, "cuda: {} is no target for CUDA", target.name);
  return {target.capability, target.capability >= 90};
}

void name_target(kernel::Target& t, std::uint64_t versions) {
  t.name = cuda_target(t).arch();
  std::uint64_t h = combine(hash_text(t.name), versions);
  for (std::int64_t figure :
       {std::int64_t{t.workers}, t.shared_bytes, t.block_shared_bytes, t.registers,
        std::int64_t{t.threads}, std::int64_t{t.blocks}, t.l2_bytes})
    h = combine(h, static_cast<std::uint64_t>(figure));
  t.fingerprint = h;
}

} // namespace egret::backend::cuda
