// A compiled function as a C library: any C program can call it, without egret. Where there is a
// GPU, also for GPUs: then the program needs their driver, and nothing else of CUDA.
#include <egret/egret.h>

#include <filesystem>
#include <fstream>
#include <iostream>

using namespace egret;

/// The declaration in the header that begins like this.
void print_declaration(const std::filesystem::path& path, const std::string& begin) {
  std::ifstream header(path);
  for (std::string line; std::getline(header, line);)
    if (line.starts_with(begin))
      std::cout << line << '\n';
}

int main() {
  Generator g(1);
  const nn::Mlp model({4, 16, 3}, g);
  const auto folder = std::filesystem::temp_directory_path() / "egret_example";
  std::filesystem::create_directories(folder);

  auto classify = compile([&](const Tensor& x) { return softmax(model(x), -1); });
  const Tensor x = randn({2, 4}, g);
  classify(x);
  classify.export_library((folder / "classify.c").string());
  print_declaration(folder / "classify.h", "int classify(");

  if (device_status("cuda").usable) {
    use_device("cuda"); // what is compiled from now on is for the GPU
    classify(x);
    classify.export_library((folder / "classify_gpu.c").string());
    print_declaration(folder / "classify_gpu.h", "int classify_gpu(");
  }
  std::filesystem::remove_all(folder);
}
