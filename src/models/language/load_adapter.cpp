#include "egret/functional.h"
#include "egret/io.h"
#include "io/json_file.h"
#include "models/language/adapter.h"
#include "models/language/config.h"
#include "models/language/peft_names.h"
#include "support/fail.h"
#include "support/printable.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace egret::models::language {

namespace {

/// What a configuration says of the updates.
struct Settings {
  std::int64_t rank;
  double scale;
  bool gate_up = false, down = false; ///< of experts, as parameters of one module
};

/// PiSSA, OLoRA, CorDA, LoftQ and others change the model's weights before they train the adapter,
/// which is nothing to add to those that were published. PEFT can save them converted.
void require_same_base(Keys& keys, const std::filesystem::path& path) {
  const nlohmann::json* init = keys.find({"init_lora_weights"});
  const auto keeps = [](const nlohmann::json& way) {
    return way.is_boolean() || way.is_null() || way == "gaussian" || way == "eva" ||
           way == "orthogonal";
  };
  if (init != nullptr && !keeps(*init))
    fail(ErrorKind::Unsupported,
         "{}: 'init_lora_weights' is {}: such an adapter is for changed weights of the model, "
         "unless it was converted when it was saved",
         path.string(), shown(*init));
}

Settings read_settings(const std::filesystem::path& path) {
  Keys keys(io::read_json_object(path), path.string());
  const auto require = [&](const char* key, const char* wanted) {
    if (const std::string found = keys.text({key}, wanted); found != wanted)
      fail(ErrorKind::Unsupported, "{}: '{}' is '{}'; egret knows '{}'", path.string(), key,
           printable(found), wanted);
  };
  require("peft_type", "LORA");
  require("task_type", "CAUSAL_LM");
  require("bias", "none");
  Settings settings{.rank = keys.integer({"r"}, 1, 1 << 20), .scale = 1};
  const double alpha = keys.number({"lora_alpha"}, 1e-9, 1e9);
  const bool stabilized = keys.flag({"use_rslora"}, false); // Kalajdzievski 2023
  const auto r = static_cast<double>(settings.rank);
  settings.scale = alpha / (stabilized ? std::sqrt(r) : r);
  if (const nlohmann::json* parameters = keys.find({"target_parameters"}))
    for (const nlohmann::json& one : *parameters) {
      const std::string name = one.is_string() ? one.get<std::string>() : shown(one);
      const std::string last = name.substr(name.rfind('.') + 1);
      settings.gate_up = settings.gate_up || last == "gate_up_proj";
      settings.down = settings.down || last == "down_proj";
      if (last != "gate_up_proj" && last != "down_proj")
        fail(ErrorKind::Unsupported,
             "{}: 'target_parameters' has '{}'; egret knows gate_up_proj and down_proj of experts",
             path.string(), printable(name));
    }
  require_same_base(keys, path);
  // What only tells how the adapter was made, or repeats what its tensors say.
  keys.require_all_read({"auto_mapping", "base_model_name_or_path", "exclude_modules",
                         "fan_in_fan_out", "inference_mode", "layers_pattern",
                         "layers_to_transform", "loftq_config", "corda_config", "eva_config",
                         "lora_dropout", "megatron_config", "megatron_core", "peft_version",
                         "qalora_group_size", "revision", "target_modules"});
  return settings;
}

/// What a module of the file changes: a matrix, that of one expert, or those of all experts, gates
/// and projections up one after the other.
struct Module {
  std::vector<const LayerMatrix*> matrices;
  std::optional<std::int64_t> expert = {};
  bool together = false;
};

using Modules = std::map<std::string, Module>;

Modules modules_of(const std::vector<LayerMatrix>& layers, const Settings& settings) {
  Modules known;
  for (const LayerMatrix& layer : layers) {
    if (layer.experts == 0)
      known.emplace(layer.module, Module{{&layer}});
    for (std::int64_t e = 0; e < layer.experts; ++e)
      known.emplace(of_expert(layer.module, e), Module{{&layer}, e});
    if (layer.experts == 0 || !(layer.role == Role::ExpertDown ? settings.down : settings.gate_up))
      continue;
    const bool first = layer.role != Role::ExpertDown && settings.down;
    Module& all = known[layer.together + (first ? std::string(peft::kFirst) : "")];
    all.together = true;
    all.matrices.push_back(&layer); // the gate before the projection up, as layers are listed
  }
  return known;
}

/// The updates of a layer's experts as one; those that have none get zeros.
nn::LowRank of_all_experts(const LayerMatrix& layer,
                           const std::map<std::int64_t, nn::LowRank>& each) {
  const nn::LowRank& some = each.begin()->second;
  std::vector<Tensor> a, b;
  for (std::int64_t e = 0; e < layer.experts; ++e) {
    const auto at = each.find(e);
    const bool has = at != each.end();
    a.push_back(has ? at->second.a.to(some.a.dtype()) : zeros_like(some.a));
    b.push_back(has ? at->second.b.to(some.b.dtype()) : zeros_like(some.b));
  }
  return {stack(a).eval(), stack(b).eval(), some.scale};
}

class AdapterReader {
public:
  AdapterReader(const std::filesystem::path& folder, const std::vector<LayerMatrix>& layers)
      : path_(folder / peft::kTensors), settings_(read_settings(folder / peft::kConfig)),
        file_(path_), layers_(layers), known_(modules_of(layers, settings_)) {}

  Adapter read() {
    for (const io::TensorInfo& info : file_.tensors())
      check(info);
    if (found_.empty())
      fail(ErrorKind::File, "{}: there are no tensors", path_.string());
    std::map<const LayerMatrix*, std::map<std::int64_t, nn::LowRank>> each;
    for (const std::string& name : found_) {
      const Module& module = known_.at(name);
      const std::string a = tensor_name(name, peft::kA), b = tensor_name(name, peft::kB);
      for (const std::string& tensor : {a, b})
        if (!file_.contains(tensor))
          fail(ErrorKind::File, "{}: tensor '{}' is missing", path_.string(), tensor);
      if (module.together)
        add_together(module, file_.read(a), file_.read(b), a);
      else if (module.expert)
        each[module.matrices[0]].emplace(
            *module.expert, nn::LowRank(file_.read(a), file_.read(b), settings_.scale));
      else
        add(*module.matrices[0], {file_.read(a), file_.read(b), settings_.scale}, a);
    }
    for (const auto& [layer, low] : each)
      add(*layer, of_all_experts(*layer, low), layer->module);
    return std::move(adapter_);
  }

private:
  static std::string tensor_name(const std::string& module, std::string_view end) {
    return fmt::format("{}{}{}", peft::kPrefix, module, end);
  }

  [[noreturn]] void refuse(const std::string& tensor, const std::string& why) const {
    fail(ErrorKind::File, "{}: tensor '{}' {}", path_.string(), printable(tensor), why);
  }

  void check(const io::TensorInfo& info) {
    std::string_view name = info.name;
    const bool is_a = name.ends_with(peft::kA), is_b = name.ends_with(peft::kB);
    if (!name.starts_with(peft::kPrefix) || !(is_a || is_b))
      refuse(info.name, "is none of a LoRA adapter");
    name.remove_prefix(peft::kPrefix.size());
    name.remove_suffix(is_a ? peft::kA.size() : peft::kB.size());
    const auto at = known_.find(std::string(name));
    if (at == known_.end())
      refuse(info.name,
             fmt::format("is for a module that the model has not, or whose matrix adapters cannot "
                         "change; the adapter is for another model (this one has {} ...)",
                         layers_.empty() ? "none" : layers_.front().module));
    const Module& module = at->second;
    std::int64_t rank = settings_.rank, out = 0;
    for (const LayerMatrix* matrix : module.matrices)
      out += matrix->out;
    if (module.together)
      rank *= module.matrices[0]->experts;
    const std::vector<std::int64_t> wanted =
        is_a ? std::vector{rank, module.matrices[0]->in} : std::vector{out, rank};
    if (info.shape != wanted)
      refuse(info.name, fmt::format("is [{}]; the model and the rank ask for [{}]",
                                    fmt::join(info.shape, ","), fmt::join(wanted, ",")));
    if (!is_float(info.dtype))
      refuse(info.name, fmt::format("is of {}, not of floats", name_of(info.dtype)));
    found_.insert(at->first);
  }

  void add(const LayerMatrix& layer, nn::LowRank low, const std::string& tensor) {
    if (!adapter_.layers.emplace(layer.module, std::move(low)).second)
      refuse(tensor, "is for experts that have updates in another form too");
  }

  /// Rows of a are those of one expert after the other, columns of b change their expert first.
  void add_together(const Module& module, const Tensor& a, const Tensor& b,
                    const std::string& tensor) {
    const std::int64_t experts = module.matrices[0]->experts;
    const Tensor each_a = a.reshape({experts, settings_.rank, a.size(1)}).eval();
    const Tensor each_b = b.reshape({b.size(0), settings_.rank, experts}).permute({2, 0, 1});
    std::int64_t row = 0;
    for (const LayerMatrix* matrix : module.matrices) {
      add(*matrix, {each_a, each_b.narrow(1, row, matrix->out).eval(), settings_.scale}, tensor);
      row += matrix->out;
    }
  }

  const std::filesystem::path path_;
  const Settings settings_;
  const io::SafetensorsFile file_;
  const std::vector<LayerMatrix>& layers_;
  const Modules known_;
  std::set<std::string> found_; ///< modules of the file
  Adapter adapter_;
};

} // namespace

Adapter load_adapter(const std::filesystem::path& folder, const std::vector<LayerMatrix>& layers) {
  return AdapterReader(folder, layers).read();
}

} // namespace egret::models::language
