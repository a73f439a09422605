// The explicit interface: a graph that is built, compiled by composed passes, and executed.
#include "egret/display.h"
#include "egret/functional.h"
#include "egret/graph.h"

#include <filesystem>
#include <iostream>

using namespace egret;

int main() {
  Graph cx;
  auto a = cx.tensor({3, 1}).set({1, 2, 3});
  auto b = cx.tensor({1, 4}).set({1, 2, 3, 4});
  auto c = (matmul(a, b) * 1 + 0).retrieve();

  // A pass of one's own joins the others.
  const Pass count("count_nodes", [](const ir::Graph& graph, Notes& notes) {
    notes.push_back("there are " + std::to_string(graph.size()) + " nodes now");
    return graph;
  });
  cx.compile(count | Generic{} | count | Fusion{}, &c);
  std::cout << cx.report() << "\n" << cx.text() << "\n" << cx.explain() << "\n";

  // As a page for a browser, with what is looked for in colour.
  const auto page = std::filesystem::temp_directory_path() / "egret_example_graph.html";
  display(cx, {{"mul", "orange", "an outer product"}, {"%0", "#7fb3ff"}}, page.string());
  std::cout << "the graph is shown by " << page.filename().string() << ", "
            << std::filesystem::file_size(page) << " bytes\n\n";
  std::filesystem::remove(page);

  cx.execute();
  for (float value : c.data())
    std::cout << value << " ";
  std::cout << "\n";

  // Inputs are used up; set again, the graph runs again, here with a look at every operation.
  a.set({10, 20, 30});
  b.set({1, 1, 1, 1});
  std::cout << "\n" << cx.execute_debug().text();
  return c.data()[11] == 30 ? 0 : 1;
}
