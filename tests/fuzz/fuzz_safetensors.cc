// Any bytes as a safetensors file: an error or a header that can be built again.
#include <cstdlib>
#include <span>
#include <string_view>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace fourfold;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto length = parse_safetensors_length(bytes, size, "f");
  if (!length) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data) + kSafetensorsLengthBytes,
                              length.value());
  auto header = parse_safetensors_header(json, size, "f");
  if (!header) return 0;
  auto tensors = header.value().tensors;
  const std::string again = build_safetensors_header(tensors, header.value().metadata);
  if (!tensors.empty() && tensors.back().end != header.value().data_bytes) std::abort();
  const auto second =
      parse_safetensors_header(std::string_view(again).substr(kSafetensorsLengthBytes),
                               again.size() + header.value().data_bytes, "f");
  if (!second || second.value().tensors.size() != tensors.size()) std::abort();
  return 0;
}
