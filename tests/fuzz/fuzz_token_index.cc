// Any bytes as an .idx file: an error or an index whose sequences lie inside its .bin. The first 8
// bytes state the size of the .bin.
#include <cstdlib>
#include <cstring>
#include <span>

#include "formats/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace fourfold;
  std::uint64_t bin_bytes = 0;
  if (size < sizeof bin_bytes) return 0;
  std::memcpy(&bin_bytes, data, sizeof bin_bytes);
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + sizeof bin_bytes,
                        size - sizeof bin_bytes);
  const auto parsed = TokenIndex::parse(bytes, bin_bytes, "f");
  if (!parsed) return 0;
  const TokenIndex& index = parsed.value();
  std::int64_t tokens = 0;
  for (std::int64_t d = 0; d < index.documents(); ++d) {
    for (auto s = index.document_begin(d); s < index.document_begin(d + 1); ++s) {
      if (index.sequence_begin(s) != tokens) std::abort();
      tokens += index.sequence_length(s);
    }
  }
  if (tokens != index.tokens()) std::abort();
  if (static_cast<std::uint64_t>(tokens * token_bytes(index.type())) != bin_bytes) std::abort();
  return 0;
}
