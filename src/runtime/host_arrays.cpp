#include "runtime/host_arrays.h"

#include <cstring>

namespace egret::runtime {

std::vector<backend::reference::HostArray> host_arrays(const ir::Graph& graph,
                                                       std::span<const RunInput> inputs) {
  std::vector<backend::reference::HostArray> arrays;
  for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
    const ir::Node& node = graph[graph.inputs()[slot]];
    backend::reference::Dims dims;
    for (const Expr& dim : inputs[slot].shape ? *inputs[slot].shape : node.shape)
      dims.push_back(dim.value());
    backend::reference::HostArray array(node.dtype, dims);
    if (array.bytes.empty()) {
    } else if (node.attrs.by_value) {
      std::memcpy(array.bytes.data(), &inputs[slot].bits, array.bytes.size());
    } else {
      const StoragePtr& storage = inputs[slot].storage;
      storage->device().copy_out(array.bytes.data(), storage->data(), array.bytes.size());
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

} // namespace egret::runtime
