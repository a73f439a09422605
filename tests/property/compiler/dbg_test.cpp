#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include <gtest/gtest.h>
#include <fmt/format.h>
using namespace egret; namespace reference = backend::reference;
TEST(Dbg, One){
  uint64_t seed=strtoull(getenv("SEED"),0,10); int ops=atoi(getenv("OPS"));
  egret::testing::RandomGraphOptions o; o.ops=ops; for(int i=0;i<kOps;++i) if((Op)i!=Op::ReduceArgMax && (Op)i!=Op::Input) o.allowed.push_back((Op)i);
  auto g=egret::testing::random_graph(seed,o);
  auto device = backend::cpu::make_cpu_device(2); compiler::KernelCache cache;
  auto inputs = egret::testing::random_inputs(g, seed);
  auto expected = reference::expect(g, inputs);
  auto c = compiler::compile_graph(g, {}, *device, cache);
  puts(c.report.text().c_str()); puts(ir::print(c.report.graph).c_str()); puts(kernel::print(c.plan).c_str());
  for(auto&k:c.plan.kernels) {puts(kernel::print(k.region).c_str()); if(getenv("PROG")) puts(kernel::print(k.program).c_str());}
  for(int m=0;m<2;++m){ auto in2=inputs; auto actual = egret::testing::run_plan(c, g, in2, m?device.get():nullptr);
  for(size_t i=0;i<actual.size();++i){auto r=reference::compare(actual[i],expected[i],fmt::format("output {}",i)); if(!r.ok) printf("mode %d: %s\n",m,r.message.c_str());}}
}
