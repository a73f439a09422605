#include "runtime/derived_program.h"

#include "runtime/count.h"

#include <mutex>
#include <optional>
#include <utility>

namespace egret::runtime {
namespace {

class DerivedProgram final : public Program {
public:
  DerivedProgram(const compiler::ParameterFolding& derivation, std::shared_ptr<const Program> main,
                 std::shared_ptr<const Program> fill)
      : sources_(derivation.sources), derived_(derivation.report), main_(std::move(main)),
        fill_(std::move(fill)) {}

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override {
    std::vector<RunInput> all(inputs.begin(), inputs.end());
    for (StoragePtr& storage : derived(inputs))
      all.push_back({std::move(storage)});
    return main_->run(all);
  }
  const compiler::CompileReport& report() const override {
    std::lock_guard lock(mutex_);
    if (!report_) {
      report_ = main_->report();
      report_->derived = derived_;
    }
    return *report_;
  }
  std::string plan() const override { return main_->plan(); }
  std::string loops() const override { return fill_->loops() + main_->loops(); }
  std::string schedules() const override { return main_->schedules(); }
  std::string loop_terms() const override { return main_->loop_terms(); }
  std::string code() const override { return fill_->code() + main_->code(); }
  std::size_t bytes() const override { return fill_->bytes() + main_->bytes(); }

private:
  struct Version {
    std::weak_ptr<Storage> storage; ///< a training step may write over what nobody else holds
    std::uint64_t number = 0;
  };

  std::vector<StoragePtr> derived(std::span<const RunInput> inputs) const {
    std::lock_guard lock(mutex_);
    bool current = versions_.size() == sources_.size();
    for (std::size_t i = 0; i < sources_.size() && current; ++i)
      current = versions_[i].storage.lock() == inputs[sources_[i]].storage &&
                versions_[i].number == inputs[sources_[i]].storage->version();
    if (current)
      return values_;
    versions_.clear();
    std::vector<RunInput> from;
    std::vector<Version> versions;
    for (std::size_t source : sources_) {
      from.push_back(inputs[source]);
      versions.push_back({inputs[source].storage, inputs[source].storage->version()});
    }
    values_ = fill_->run(from);
    versions_ = std::move(versions);
    count().derived_fills.add(1);
    return values_;
  }

  const std::vector<std::size_t> sources_;
  const std::vector<compiler::FoldedParameter> derived_;
  const std::shared_ptr<const Program> main_, fill_;
  mutable std::mutex mutex_;
  mutable std::optional<compiler::CompileReport> report_; ///< made when it is asked for
  mutable std::vector<StoragePtr> values_;
  mutable std::vector<Version> versions_; ///< by source, of `values_`; empty: there are none
};

} // namespace

std::shared_ptr<const Program> make_derived_program(const compiler::ParameterFolding& derivation,
                                                    std::shared_ptr<const Program> main,
                                                    std::shared_ptr<const Program> fill) {
  return std::make_shared<DerivedProgram>(derivation, std::move(main), std::move(fill));
}

} // namespace egret::runtime
