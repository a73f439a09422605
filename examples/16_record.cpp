// A record of what the compiler does, for `egret view` (docs/seeing.md).
//
//   ...
//   graph: 4
//   kernel: 2
//   launch: 2
//   node: 32
//   pass: 30
//   ...
//   egret view egret_example.jsonl shows it in a browser
#include <egret/egret.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

using namespace egret;

int main() {
  const auto path = std::filesystem::temp_directory_path() / "egret_example.jsonl";
  {
    Record record(path.string());
    auto f = compile([](const Tensor& x) { return softmax(exp(x) * 2, -1); });
    f(ones({4, 8})).eval();
    record.close(); // the file appears now
  }

  // One JSON object a line: each pass with its graph, kernels from region to source, launches.
  std::ifstream in(path);
  std::map<std::string, int> events;
  const std::string key = "{\"event\":\"";
  for (std::string line; std::getline(in, line);)
    ++events[line.substr(key.size(), line.find('"', key.size()) - key.size())];
  for (const auto& [event, count] : events)
    std::cout << event << ": " << count << "\n";
  std::cout << "egret view " << path.filename().string() << " shows it in a browser\n";
  in.close();
  std::filesystem::remove(path);
  return events["kernel"] > 0 && events["launch"] > 0 && events["end"] == 1 ? 0 : 1;
}
