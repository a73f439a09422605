#include "bench.h"

namespace egret::tool::bench {

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> list = [] {
    std::vector<Workload> all;
    for (auto part :
         {ceiling_workloads, matmul_workloads, attention_workloads, elementwise_workloads,
          scan_workloads, windows_workloads, convolution_gradient_workloads, order_workloads,
          loss_workloads, training_workloads, llama_workloads, compile_workloads, record_workloads})
      for (auto& workload : part())
        all.push_back(std::move(workload));
    return all;
  }();
  return list;
}

} // namespace egret::tool::bench
