// Graphs as ONNX models, for ONNX Runtime, Netron and whatever else reads them.
#pragma once

#include "egret/ir.h"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::onnx {

/// How the graph's inputs and outputs are called, and what is known of them.
struct Interface {
  struct Input {
    std::string name; ///< made unique
    /// Its value, in the bytes of its dtype: then it is an initializer of the model, no input.
    std::optional<std::span<const std::byte>> value;
    std::size_t place = 0; ///< inputs of the model stand by ascending places, then by slot
  };
  /// An output of the graph, an input as it is, or bytes.
  struct Result {
    enum class Kind : std::uint8_t { Output, Input, Value } kind = Kind::Output;
    std::string name;
    std::size_t number = 0; ///< of the graph's output or input
    DType dtype = DType::F32;
    Shape shape; ///< Value: constant sizes
    std::span<const std::byte> value;
  };
  std::string name;          ///< of the model
  std::vector<Input> inputs; ///< by slot
  std::vector<Result> results;
  std::vector<int> lines; ///< by node: the line of the text that it was read from; empty: no text
};

/// All inputs as inputs, all outputs as results.
Interface interface_of(const ir::Graph& graph, std::string name);

struct Options {
  /// Values that take more bytes in all are written to NAME.onnx.data beside the model: messages of
  /// Protocol Buffers end at 2 GiB.
  std::size_t most_bytes = std::size_t{1} << 30;
};

/// Writes the graph as ONNX (opset 19) to `path`. Contractions become MatMul or Einsum,
/// convolutions Conv, broadcasts are left to the operators; every other operation is one operator
/// or a few that give its values at the edges too, with the dtypes that ONNX Runtime's CPU kernels
/// take. Error(Unsupported) names a node that has no form in ONNX and why; Error(File) when a file
/// cannot be written. The bytes of values must live until it returns.
void write_model(const std::filesystem::path& path, const ir::Graph& graph,
                 const Interface& interface, const Options& options = {});

} // namespace egret::onnx
