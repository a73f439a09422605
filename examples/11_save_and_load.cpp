// Weights in safetensors files: saved whole or not at all, loaded by name, readable by other tools.
#include <egret/egret.h>

#include <filesystem>
#include <iostream>

using namespace egret;

int main() {
  const auto file = std::filesystem::temp_directory_path() / "egret-example.safetensors";
  Generator random(1);
  nn::Mlp model({4, 8, 3}, random);
  save_checkpoint(file, model, {{"note", "untrained"}});

  // What is in the file, without reading any weights.
  const io::SafetensorsFile opened(file);
  for (const auto& tensor : opened.tensors())
    std::cout << tensor.name << " " << name_of(tensor.dtype) << " of " << tensor.end - tensor.begin
              << " bytes\n";
  std::cout << "note: " << opened.metadata().at("note") << "\n";

  // Into another model of the same shape: now both compute the same.
  nn::Mlp other({4, 8, 3}, random);
  load_checkpoint(file, other);
  const Tensor x = randn({2, 4}, random);
  const bool same = model(x).to_bytes() == other(x).to_bytes();

  // A model of another shape is refused, and stays as it was.
  nn::Mlp larger({4, 16, 3}, random);
  bool refused = false;
  try {
    load_checkpoint(file, larger);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
    refused = error.kind() == ErrorKind::Shape;
  }
  std::filesystem::remove(file);
  return same && refused ? 0 : 1;
}
