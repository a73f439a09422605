#include "backend/reference/kernel_check.h"

#include "backend/reference/compare.h"
#include "backend/reference/guarded_buffer.h"
#include "backend/reference/random_inputs.h"
#include "backend/reference/region_evaluator.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

namespace egret::backend::reference {

using kernel::Combine;
using kernel::Region;

namespace {

/// What output memory is filled with: in floats a NaN that no arithmetic makes.
constexpr std::byte kPoison{0xFF};

} // namespace

struct KernelChecker::Impl {
  Impl(const Region& region, const Bindings& sizes, const KernelCheckOptions& options)
      : region_(region), sizes_(sizes), options_(options), random_(options.seed) {
    make_operands();
    evaluator_.emplace(region_, sizes_, pointers_to(operands_));
    make_outputs();
  }

  KernelCheck run(const kernel::KernelProgram& program, const LaunchKernel& launch) {
    program_ = &program;
    report_ = {};
    random_ = RandomNumbers(options_.seed + 1); // the same sample each time
    fill_memory();
    if (!launch_on(launch))
      return report_;
    check_memory();
    report_.complete = total_work() <= options_.complete_work;
    for (std::size_t o = 0; o < region_.outputs.size() && report_.ok; ++o) {
      const int output = static_cast<int>(o);
      if (region_.outputs[o].combine != Combine::Store)
        check_scatter(*evaluator_, output);
      else if (report_.complete)
        check_all(*evaluator_, output);
      else
        check_sample(*evaluator_, output);
    }
    return report_;
  }

private:
  static std::vector<const HostArray*> pointers_to(const std::vector<HostArray>& arrays) {
    std::vector<const HostArray*> pointers;
    for (const HostArray& array : arrays)
      pointers.push_back(&array);
    return pointers;
  }

  template <class... Args>
  void wrong(fmt::format_string<Args...> format, Args&&... args) {
    if (report_.ok)
      report_.message = fmt::format("{} ({}): ", program_->name, region_.name) +
                        fmt::format(format, std::forward<Args>(args)...);
    report_.ok = false;
  }

  // --- memory

  void make_operands() {
    const std::int64_t limit = index_limit_of(region_, sizes_);
    for (const kernel::Operand& operand : region_.operands) {
      const std::int64_t count = element_count(sizes_.values_of(operand.shape));
      operands_.push_back(
          random_array(operand.dtype, count, limit, options_.special_values, random_));
      // An epsilon or a rate below zero would make a NaN of every result, which tells nothing.
      if (HostArray& made = operands_.back(); operand.role == kernel::Role::Scalar &&
                                              is_float(operand.dtype) && !options_.special_values)
        made.set(0, {.f = std::fabs(made.at(0).f)});
    }
  }

  void make_outputs() {
    for (std::size_t o = 0; o < region_.outputs.size(); ++o) {
      const kernel::Output& output = region_.outputs[o];
      const std::int64_t count = evaluator_->elements(static_cast<int>(o));
      const bool scatter = output.combine != Combine::Store;
      HostArray before(output.dtype, {count});
      std::fill(before.bytes.begin(), before.bytes.end(), kPoison);
      if (scatter) // the data that is updated
        before = output.alias >= 0 ? operands_[static_cast<std::size_t>(output.alias)]
                                   : random_array(output.dtype, count, 0, false, random_);
      shared_.push_back(options_.share_aliases && output.alias >= 0);
      before_.push_back(std::move(before));
    }
    for (const kernel::Stage& stage : region_.stages)
      for (const kernel::BodyValue& value : stage.body)
        writes_any_bits_ |= value.kind == kernel::BodyValue::Kind::Apply &&
                            value.op == Op::Bitcast && is_float(value.dtype);
  }

  /// Everything as it is before a launch. Memory that the last program left whole is used again.
  void fill_memory() {
    workspaces_.clear();
    buffers_.resize(operands_.size());
    intact_.resize(operands_.size(), false);
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (!intact_[i])
        fill(buffers_[i], operands_[i], region_.operands[i].alignment);
    intact_.assign(operands_.size(), false);
    out_buffers_.resize(before_.size());
    for (std::size_t o = 0; o < before_.size(); ++o)
      if (!shared_[o])
        fill(out_buffers_[o], before_[o], 64);
  }

  void fill(std::unique_ptr<GuardedBuffer>& buffer, const HostArray& array,
            std::int64_t alignment) const {
    if (!buffer || buffer->damage() != 0)
      buffer = std::make_unique<GuardedBuffer>(array.bytes.size(), alignment, kPoison);
    if (!array.bytes.empty())
      std::memcpy(buffer->data(), array.bytes.data(), array.bytes.size());
  }

  std::byte* output_memory(std::size_t o) {
    return shared_[o] ? buffers_[static_cast<std::size_t>(region_.outputs[o].alias)]->data()
                      : out_buffers_[o]->data();
  }

  bool launch_on(const LaunchKernel& launch) {
    std::vector<void*> pointers;
    std::vector<std::uint64_t> scalars;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (region_.operands[i].role == kernel::Role::Tensor)
        pointers.push_back(buffers_[i]->data());
      else
        scalars.push_back(scalar_of(operands_[i].dtype, operands_[i].at(0)).bits);
    }
    for (std::size_t o = 0; o < region_.outputs.size(); ++o)
      pointers.push_back(output_memory(o));
    const auto arguments =
        std::count_if(program_->buffers.begin(), program_->buffers.end(),
                      [](const kernel::Buffer& b) { return b.space == kernel::Space::Argument; });
    if (arguments != static_cast<std::ptrdiff_t>(pointers.size()) ||
        program_->scalars.size() != scalars.size()) {
      wrong("has {} pointer and {} scalar arguments, the region has {} and {}", arguments,
            program_->scalars.size(), pointers.size(), scalars.size());
      return false;
    }
    for (const kernel::Buffer& buffer : program_->buffers)
      if (buffer.space == kernel::Space::Workspace) {
        const auto count = static_cast<std::size_t>(sizes_.value_of(buffer.elements));
        workspaces_.push_back(
            std::make_unique<GuardedBuffer>(count * size_of(buffer.dtype), 64, kPoison));
        pointers.push_back(workspaces_.back()->data());
      }
    std::vector<std::int64_t> dims;
    for (const Expr& dim : program_->dims)
      dims.push_back(sizes_.value_of(dim));
    launch(*program_, {pointers.data(), dims.data(), scalars.data(), nullptr, nullptr});
    return true;
  }

  void check_memory() {
    auto whole = [&](const GuardedBuffer& buffer, const char* what, std::size_t number) {
      if (const std::int64_t at = buffer.damage(); at != 0)
        wrong("writes out of bounds: byte {} of {} {}, which has {} bytes", at, what, number,
              buffer.size());
    };
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      whole(*buffers_[i], "operand", i);
    for (std::size_t o = 0; o < out_buffers_.size(); ++o)
      if (out_buffers_[o])
        whole(*out_buffers_[o], "output", o);
    for (std::size_t w = 0; w < workspaces_.size(); ++w)
      whole(*workspaces_[w], "workspace", w);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (is_shared(i))
        continue;
      const std::vector<std::byte>& before = operands_[i].bytes;
      const bool same =
          before.empty() || std::memcmp(before.data(), buffers_[i]->data(), before.size()) == 0;
      intact_[i] = same && buffers_[i]->damage() == 0;
      if (!same)
        wrong("changes operand {}", i);
    }
  }

  bool is_shared(std::size_t operand) const {
    for (std::size_t o = 0; o < shared_.size(); ++o)
      if (shared_[o] && region_.outputs[o].alias == static_cast<int>(operand))
        return true;
    return false;
  }

  // --- values

  /// Evaluations of stage bodies that a complete check takes.
  std::int64_t total_work() const {
    double work = 0;
    for (const kernel::Stage& stage : region_.stages)
      work += points_of(stage.axes);
    return static_cast<std::int64_t>(std::min(work, 1e18));
  }

  double points_of(const std::vector<int>& axes) const {
    double points = 1;
    for (int axis : axes)
      points *=
          static_cast<double>(sizes_.value_of(region_.axes[static_cast<std::size_t>(axis)].extent));
    return points;
  }

  /// Evaluations that one point of an output takes, when nothing is known yet.
  double work_of_point() const {
    double work = 1;
    for (const kernel::Stage& stage : region_.stages)
      work += points_of(stage.over);
    return work;
  }

  bool is_poison(std::size_t o, std::int64_t offset) {
    const std::size_t size = size_of(region_.outputs[o].dtype);
    const std::byte* at = output_memory(o) + static_cast<std::size_t>(offset) * size;
    return std::all_of(at, at + size, [](std::byte b) { return b == kPoison; });
  }

  void compare_at(int output, std::int64_t offset, const Estimate& want, const std::string& where) {
    const auto o = static_cast<std::size_t>(output);
    const DType type = region_.outputs[o].dtype;
    const Number got =
        read_number(type, output_memory(o) + static_cast<std::size_t>(offset) * size_of(type));
    ++report_.checked;
    report_.vacuous += std::isinf(want.error);
    if (is_float(type) && region_.outputs[o].combine == Combine::Store && !shared_[o] &&
        !(writes_any_bits_ && std::isnan(want.value.f)) && is_poison(o, offset))
      return wrong("does not write element {} of output {} ({})", offset, output, where);
    if (accepts(type, want, got, {.scale = options_.scale})) {
      if (is_float(type) && want.error > 0 && std::isfinite(want.error) && std::isfinite(got.f))
        report_.worst = std::max(report_.worst,
                                 std::fabs(want.value.f - got.f) / (want.error * options_.scale));
    } else {
      wrong("element {} of output {} ({}) is {}, expected {} (tolerance {:.3g}, {})", offset,
            output, where, text_of(type, got), text_of(type, want.value),
            want.error * options_.scale, name_of(type));
    }
  }

  void check_point(RegionEvaluator& evaluator, int output, const Dims& point) {
    if (const auto offset = evaluator.offset_of(output, point))
      compare_at(output, *offset, evaluator.at(output, point),
                 fmt::format("point {}", to_string(point)));
  }

  void check_all(RegionEvaluator& evaluator, int output) {
    const auto o = static_cast<std::size_t>(output);
    std::vector<bool> written(static_cast<std::size_t>(evaluator.elements(output)), false);
    for_each_point(evaluator.domain(output), [&](const Dims& point, std::int64_t) {
      const auto offset = evaluator.offset_of(output, point);
      if (!offset || !report_.ok)
        return;
      written[static_cast<std::size_t>(*offset)] = true;
      compare_at(output, *offset, evaluator.at(output, point),
                 fmt::format("point {}", to_string(point)));
    });
    if (shared_[o])
      return;
    for (std::size_t i = 0; i < written.size(); ++i)
      if (!written[i] && !is_poison(o, static_cast<std::int64_t>(i)))
        return wrong("writes element {} of output {}, which no point of the region goes to", i,
                     output);
  }

  void check_sample(RegionEvaluator& evaluator, int output) {
    check_coverage(evaluator, output);
    for (const Dims& point : sample_of(output, evaluator.domain(output)))
      if (report_.ok)
        check_point(evaluator, output, point);
  }

  /// Cheap and complete: when every element is the place of one point, none may be left as it was.
  void check_coverage(const RegionEvaluator& evaluator, int output) {
    const auto o = static_cast<std::size_t>(output);
    if (shared_[o] || writes_any_bits_ || !is_float(region_.outputs[o].dtype) ||
        element_count(evaluator.domain(output)) != evaluator.elements(output))
      return;
    const auto at = first_poison(output_memory(o), evaluator.elements(output),
                                 size_of(region_.outputs[o].dtype));
    if (at)
      wrong("does not write element {} of output {}", *at, output);
  }

  static std::optional<std::int64_t> first_poison(const std::byte* memory, std::int64_t count,
                                                  std::size_t size) {
    switch (size) {
    case 1:
      return first_poison_of<std::uint8_t>(memory, count);
    case 2:
      return first_poison_of<std::uint16_t>(memory, count);
    case 4:
      return first_poison_of<std::uint32_t>(memory, count);
    default:
      return first_poison_of<std::uint64_t>(memory, count);
    }
  }

  /// A stretch at a time without a branch, which compilers turn into vectors.
  template <class Word>
  static std::optional<std::int64_t> first_poison_of(const std::byte* memory, std::int64_t count) {
    constexpr Word kAll = static_cast<Word>(~Word{0}); // kPoison in every byte
    constexpr std::int64_t kStretch = 4096;
    Word words[kStretch];
    for (std::int64_t first = 0; first < count; first += kStretch) {
      const auto some = static_cast<std::size_t>(std::min(kStretch, count - first));
      std::memcpy(words, memory + static_cast<std::size_t>(first) * sizeof(Word),
                  some * sizeof(Word));
      bool found = false;
      for (std::size_t i = 0; i < some; ++i)
        found |= words[i] == kAll;
      if (found)
        return first + (std::find(words, words + some, kAll) - words);
    }
    return std::nullopt;
  }

  /// Ends, places before and behind tile boundaries, on each axis at least once; the rest at
  /// random.
  std::vector<Dims> sample_of(int output, const Dims& domain) {
    if (element_count(domain) == 0)
      return {};
    const auto& stage = region_.stages[static_cast<std::size_t>(
        region_.outputs[static_cast<std::size_t>(output)].stage)];
    const std::vector<int> axes = result_axes(stage);
    std::vector<std::vector<std::int64_t>> classes;
    for (std::size_t i = 0; i < domain.size(); ++i)
      classes.push_back(places_on(axes[i], domain[i]));

    std::vector<Dims> sample;
    auto random_point = [&] {
      Dims point;
      for (std::size_t i = 0; i < domain.size(); ++i)
        point.push_back(random_.word() % 2 ? random_.integer(0, domain[i] - 1)
                                           : classes[i][random_.word() % classes[i].size()]);
      return point;
    };
    sample.emplace_back(domain.size(), 0);
    sample.push_back(domain);
    for (std::int64_t& last : sample.back())
      --last;
    for (std::size_t i = 0; i < domain.size(); ++i)
      for (std::int64_t place : classes[i]) {
        sample.push_back(random_point());
        sample.back()[i] = place;
      }
    const auto affordable =
        static_cast<std::int64_t>(static_cast<double>(options_.sample_work) / work_of_point());
    while (static_cast<std::int64_t>(sample.size()) < std::min(options_.samples, affordable))
      sample.push_back(random_point());
    return sample;
  }

  std::vector<std::int64_t> places_on(int axis, std::int64_t extent) const {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t tile = a < options_.tiles.size() ? options_.tiles[a] : 0;
    std::set<std::int64_t> places{0, extent - 1};
    for (std::int64_t t : tile > 0 ? std::vector{tile} : std::vector<std::int64_t>{8, 64})
      for (std::int64_t at : {t - 1, t, extent / t * t - 1, extent / t * t})
        if (at >= 0 && at < extent)
          places.insert(at);
    return {places.begin(), places.end()};
  }

  void check_scatter(RegionEvaluator& evaluator, int output) {
    const auto o = static_cast<std::size_t>(output);
    const std::int64_t count = evaluator.elements(output);
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i < count && report_.complete; ++i)
      offsets.push_back(i);
    if (!report_.complete) {
      for (const Dims& point : sample_of(output, evaluator.domain(output)))
        if (auto offset = evaluator.offset_of(output, point))
          offsets.push_back(*offset);
      for (std::int64_t i = 0; i < options_.samples && count > 0; ++i)
        offsets.push_back(random_.integer(0, count - 1));
    }
    std::sort(offsets.begin(), offsets.end());
    offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
    const auto values = evaluator.at_offsets(output, offsets, &before_[o]);
    for (std::int64_t offset : offsets)
      compare_at(output, offset, values.at(offset), "after scattering");
  }

  Region region_;
  Bindings sizes_;
  KernelCheckOptions options_;
  RandomNumbers random_;
  const kernel::KernelProgram* program_ = nullptr; ///< that is being checked
  KernelCheck report_;
  std::vector<HostArray> operands_, before_; ///< before_: output memory at the launch
  std::optional<RegionEvaluator> evaluator_; ///< of operands_; remembers what it has evaluated
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_, out_buffers_, workspaces_;
  std::vector<bool> intact_; ///< by operand: the last program left its buffer as it was
  /// An integer's bits may become a float's: results may look like memory that nothing wrote.
  bool writes_any_bits_ = false;
  std::vector<bool> shared_; ///< by output: it stands in the memory of its alias
};

KernelChecker::KernelChecker(const Region& region, const Bindings& sizes,
                             const KernelCheckOptions& options)
    : impl_(std::make_unique<Impl>(region, sizes, options)) {}
KernelChecker::~KernelChecker() = default;
KernelChecker::KernelChecker(KernelChecker&&) noexcept = default;
KernelChecker& KernelChecker::operator=(KernelChecker&&) noexcept = default;

KernelCheck KernelChecker::check(const kernel::KernelProgram& program, const LaunchKernel& launch) {
  return impl_->run(program, launch);
}

KernelCheck verify_kernel(const Region& region, const kernel::KernelProgram& program,
                          const LaunchKernel& launch, const Bindings& sizes,
                          const KernelCheckOptions& options) {
  return KernelChecker(region, sizes, options).check(program, launch);
}

} // namespace egret::backend::reference
