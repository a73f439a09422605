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

void describe_units(kernel::Target& t) {
  using kernel::OperandSource;
  const CudaTarget cuda{t.architecture, t.architecture >= 90};
  t.capabilities = 0;
  for (int c = 0; c < kernel::kCapabilities; ++c)
    if (provides(cuda, static_cast<kernel::Capability>(c)))
      t.add(static_cast<kernel::Capability>(c));
  t.units.clear();
  const std::vector<DType> halves{DType::BF16, DType::F16};
  if (t.has(kernel::Capability::SubgroupMatrices)) // mma.sync
    t.units.push_back({.name = "m16n8k16",
                       .layout = kernel::FragmentLayout::SubgroupFragments,
                       .m = 16,
                       .n = 8,
                       .k = 16,
                       .elements = halves,
                       .left = {OperandSource::Fragment},
                       .right = {OperandSource::Fragment},
                       .scope = kernel::IntrinsicScope::Subgroup,
                       .cycles = t.architecture >= 90 ? 11.0 : 14.0});
  if (t.has(kernel::Capability::QueuedMatrices))
    t.units.push_back({.name = "wgmma",
                       .layout = kernel::FragmentLayout::SwizzledSharedRows,
                       .m = 64,
                       .n = 0,
                       .k = 16,
                       .elements = halves,
                       .left = {OperandSource::Shared, OperandSource::Fragment},
                       .right = {OperandSource::Shared},
                       .scope = kernel::IntrinsicScope::SubgroupGroup,
                       .queued = true});
}

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
  t.kind = kernel::DeviceKind::Gpu;
  t.device = "cuda";
  t.architecture = capability;
  t.workers = known->multiprocessors;
  t.subgroup = 32;
  t.vector_bytes = 16;
  t.vector_registers = 255;
  t.has_fma = true;
  describe_units(t);
  t.l1_bytes = t.shared_bytes = known->shared_multiprocessor;
  t.block_shared_bytes = known->shared_block;
  t.registers = 65536;
  t.schedulers = 4;
  t.threads = known->threads;
  t.blocks = known->blocks;
  t.parameter_bytes = kParameterBytes;
  t.l2_bytes = t.l3_bytes = known->l2;
  name_target(t, 0);
  return t;
}

bool provides(const CudaTarget& target, kernel::Capability capability) {
  switch (capability) {
  case kernel::Capability::Subgroups:
  case kernel::Capability::CoResidentBlocks:
  case kernel::Capability::Atomics:
  case kernel::Capability::AsyncCopies:
  case kernel::Capability::SubgroupMatrices:
    return target.capability >= 80;
  case kernel::Capability::BulkTensorCopies:
  case kernel::Capability::BlockClusters:
    return target.capability >= 90;
  case kernel::Capability::RegisterReallocation:
    return target.capability >= 90 && target.specific;
  case kernel::Capability::QueuedMatrices: // wgmma, which later GPUs have not
    return target.capability == 90 && target.specific;
  case kernel::Capability::MatrixTiles:
    return false;
  }
  return false;
}

CudaTarget cuda_target(const kernel::Target& target) {
  if (!target.is_gpu() || target.architecture < 80)
    fail(ErrorKind::Value, "cuda: {} is no target for CUDA", target.name);
  return {target.architecture, target.architecture >= 90};
}

void name_target(kernel::Target& t, std::uint64_t versions) {
  t.name = cuda_target(t).arch();
  std::uint64_t h = combine(hash_text(t.name), versions);
  for (std::int64_t figure :
       {std::int64_t{t.workers}, t.shared_bytes, t.block_shared_bytes, t.registers,
        std::int64_t{t.threads}, std::int64_t{t.blocks}, t.l2_bytes, t.parameter_bytes})
    h = combine(h, static_cast<std::uint64_t>(figure));
  t.fingerprint = h;
}

} // namespace egret::backend::cuda
