// Writing messages of Protocol Buffers: tags, varints, lengths
// (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace egret::onnx {

/// A message that grows field by field. Repeated fields are written one element after the other.
class Message {
public:
  void number(int field, std::int64_t value);
  void text(int field, std::string_view value);
  void bytes(int field, std::span<const std::byte> value);
  void message(int field, const Message& value) { text(field, value.data_); }

  const std::string& data() const noexcept { return data_; }

private:
  void varint(std::uint64_t value);
  void tag(int field, unsigned wire_type);

  std::string data_;
};

} // namespace egret::onnx
