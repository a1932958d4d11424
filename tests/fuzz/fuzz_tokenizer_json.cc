// Any bytes as a tokenizer.json: an error or a tokenizer that can be written and read again.
#include <cstdlib>
#include <string_view>

#include "formats/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace fourfold;
  const auto model =
      parse_tokenizer_json(std::string_view(reinterpret_cast<const char*>(data), size), "f");
  if (!model) return 0;
  const auto again = parse_tokenizer_json(format_tokenizer_json(model.value()), "f");
  if (!again || again.value().fingerprint() != model.value().fingerprint()) std::abort();
  return 0;
}
