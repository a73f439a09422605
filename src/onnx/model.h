// An ONNX model as it is written: nodes, initializers, typed values. Field numbers and enum values
// are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
#pragma once

#include "egret/dtype.h"
#include "egret/expr.h"
#include "onnx/protobuf.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace egret::onnx {

/// The version of the operators, and of the format that goes with it.
inline constexpr std::int64_t kOpset = 19, kFormat = 9;

std::int64_t type_number(DType type); ///< TensorProto.DataType

struct TypedName {
  std::string name;
  DType dtype;
  std::optional<Shape> shape; ///< symbolic sizes become dim_param, as text; nothing: any shape
};

struct Body;

struct Attribute {
  std::string name;
  std::variant<std::int64_t, std::string, std::vector<std::int64_t>, std::shared_ptr<const Body>>
      value;
};

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;
  std::string note; ///< shown beside the node: the line of the graph's text
};

/// The graph that a Scan runs for each element.
struct Body {
  std::vector<OnnxNode> nodes;
  std::vector<TypedName> inputs, outputs;
};

/// A constant or a weight.
struct Initializer {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> dims;
  std::string own;                  ///< its bytes, unless
  std::span<const std::byte> given; ///< they belong to somebody else
  std::span<const std::byte> bytes() const {
    return own.empty() ? given : std::as_bytes(std::span(own));
  }
};

struct Model {
  std::string name;
  std::vector<TypedName> inputs, outputs;
  std::vector<TypedName> values; ///< what nodes give, for those who look at the model
  std::vector<Initializer> initializers;
  std::vector<OnnxNode> nodes; ///< each behind those that it reads
};

/// Nodes and initializers that no output needs leave, and the values that they give.
void remove_unused(Model& model);

/// The bytes of initializers of at least this size that are in a file beside the model.
struct ExternalData {
  std::string location; ///< the file's name, relative to the model
  std::size_t least_bytes = 1024;
  std::vector<std::span<const std::byte>> bytes; ///< of the file, filled by serialize()
};

/// ModelProto. With `external`, the bytes of large initializers are left to its file.
std::string serialize(const Model& model, ExternalData* external = nullptr);

} // namespace egret::onnx
