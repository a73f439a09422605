// Layers of a published model from the tensors of its folder.
#pragma once

#include "egret/nn.h"
#include "egret/sharded_tensors.h"
#include "egret/tree.h"

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace egret::models {

/// Tensors that a file may have beside those of the model: heads of other tasks, tables that the
/// model computes.
struct OtherTensors {
  std::vector<std::string> begins, ends; ///< names that begin, or end, with one of these
};

/// A model is described once, by a function that asks for its layers; the function runs twice.
/// First names, shapes and dtypes are compared with the files, and no value is read; then the
/// values are.
class ParameterReader {
public:
  /// `dtype` of all parameters; empty: that of each tensor in the files. Errors as
  /// io::ShardedTensors.
  ParameterReader(const std::filesystem::path& folder, std::optional<DType> dtype)
      : folder_(folder), tensors_(folder), dtype_(dtype) {}

  bool contains(const std::string& name) const { return tensors_.contains(prefix_ + name); }
  /// Names below are behind the first of these prefixes with which the file has `name`; without any
  /// the first one, so that messages name it.
  void find_prefix(std::initializer_list<const char*> prefixes, const std::string& name);

  /// What `model(*this)` returns. Error(File) naming file and tensor for one that is missing, of
  /// another shape or no float, and for one that `model` does not ask for and `others` does not
  /// allow; `what` is the model in messages. All of that before any value is read.
  template <class F>
  auto read(F model, std::string_view what, const OtherTensors& others = {}) {
    reading_ = false;
    model(*this);
    require_no_others(what, others);
    reading_ = true;
    return model(*this);
  }

  /// Floats, or integers as they are stored.
  Tensor tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                bool floats = true);
  nn::Linear linear(const std::string& name, std::int64_t in, std::int64_t out,
                    bool with_bias = true);
  nn::Embedding embedding(const std::string& name, std::int64_t count, std::int64_t width);
  /// Also with the names gamma and beta of the earliest files.
  nn::LayerNorm layer_norm(const std::string& name, std::int64_t width, double eps);

  /// The tree with the tensors of the files that have the names of its own.
  template <class T>
  T filled(T tree) {
    struct Fill final : TreeVisitor {
      explicit Fill(ParameterReader& r) : reader(r) {}
      void tensor(const std::string& path, Tensor& value) override {
        value = reader.tensor(path, value.sizes(), is_float(value.dtype()));
      }
      ParameterReader& reader;
    } fill(*this);
    visit_tree(tree, fill);
    return tree;
  }

  std::int64_t bytes() const noexcept { return bytes_; } ///< of the parameters read

private:
  void require(const std::string& name, const std::vector<std::int64_t>& shape, bool floats);
  void require_no_others(std::string_view what, const OtherTensors& others) const;

  std::filesystem::path folder_;
  io::ShardedTensors tensors_;
  std::optional<DType> dtype_;
  std::string prefix_;
  bool reading_ = false;
  std::set<std::string> used_;
  std::int64_t bytes_ = 0;
};

} // namespace egret::models
