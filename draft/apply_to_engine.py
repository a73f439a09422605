import re
p='/work/wt/lazy/src/tensor/engine.cpp';s=open(p).read()
# remove words code
a=s.index('// --- the structure of a walk in words'); b=s.index('[[noreturn]] void refuse_placeholder')
s=s[:a]+s[b:]
s=s.replace("    push_leaf(w.signature, node);\n","").replace("    push_op(w.signature, node);\n","")
s=s.replace('''  w.signature.push_back(~std::uint64_t{0});
  for (const NodePtr& output : w.outputs)
    w.signature.push_back(output->place);
  return w;
''','''  return w;
''')
a=s.index('// --- programs by the structure that was recorded'); b=s.index('// The value in memory that the device in use can work with')
s=s[:a]+s[b:]
# fix duplicated "namespace {" remains
s=s.replace('''namespace {

// The value in memory that the device in use''','''namespace {

// The value in memory that the device in use''')
s=s.replace('''  std::shared_ptr<const runtime::Program> program;
  ir::Graph graph;
  std::vector<runtime::RunInput> inputs;
  std::vector<NodePtr> dropped; // let go after the lock
  std::vector<NodePtr> piece;
''','''  KnownPlans::Found found;
  std::optional<Exploration> exploration;
  std::vector<runtime::RunInput> inputs;
  std::vector<NodePtr> dropped; // let go after the lock
  std::vector<NodePtr> piece;
''')
s=s.replace('''    w.signature.push_back(runtime::Runtime::instance().generation());
    program = signatures().find(w.signature);
    if (!program)
      graph = graph_of(w);
''','''    describe(w);
    w.signature.push_back(runtime::Runtime::instance().generation());
    found = known_plans().find(w.signature, w.numbers);
    if (!found)
      exploration = known_plans().explore(w);
''')
s=s.replace('''    if (program) {
      runtime::count().plan_hits.add(1);
    } else {
      program = runtime::Runtime::instance().program(graph, {});
      std::lock_guard lock(engine_mutex());
      signatures().put(std::move(w.signature), program);
    }
    auto values = program->run(inputs);
''','''    if (found) {
      runtime::count().plan_hits.add(1);
    } else {
      found = explored(std::move(*exploration));
      std::lock_guard lock(engine_mutex());
      known_plans().put(w.signature, w.numbers, found);
    }
    std::vector<Shape> shapes;
    if (found.relative) {
      runtime::count().plan_symbolic_hits.add(1);
      add_inputs(*found.relative, w.numbers, shapes, inputs);
    }
    auto values = found.program->run(inputs);
''')
s=s.replace('#include "tensor/engine.h"\n','#include "tensor/engine.h"\n',1)
s=s.replace('#include "support/hash.h"\n','#include "tensor/known_plans.h"\n')
s=s.replace('#include <list>\n','').replace('#include <unordered_map>\n','')
open(p,'w').write(s)
p='/work/wt/lazy/src/tensor/engine.h';s=open(p).read()
s=s.replace('''  std::vector<std::uint64_t>
      signature;        ///< all that the program depends on: equal for equal structures
''','''  std::vector<std::uint64_t> signature; ///< describe(): equal for equal structures
  std::vector<std::int64_t> numbers;    ///< describe(): with the structure, all of the program
''')
open(p,'w').write(s)
