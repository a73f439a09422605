// A compiled function as a C library: any C program can call it, without egret.
#include <egret/egret.h>

#include <filesystem>
#include <fstream>
#include <iostream>

using namespace egret;

int main() {
  Generator g(1);
  const nn::Mlp model({4, 16, 3}, g);
  auto classify = compile([&](const Tensor& x) { return softmax(model(x), -1); });
  classify(randn({2, 4}, g));

  const auto folder = std::filesystem::temp_directory_path() / "egret_example";
  std::filesystem::create_directories(folder);
  classify.export_library((folder / "classify.c").string());

  std::ifstream header(folder / "classify.h");
  for (std::string line; std::getline(header, line);)
    if (line.starts_with("int classify("))
      std::cout << line << '\n';
  std::filesystem::remove_all(folder);
}
