#include "formats/utf8.h"

namespace fourfold {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const unsigned first = byte_at(text, at);
  if (first < 0x80) return {first, 1};
  const int length = first >= 0xF5   ? 0
                     : first >= 0xF0 ? 4
                     : first >= 0xE0 ? 3
                     : first >= 0xC2 ? 2
                                     : 0;
  if (length == 0 || text.size() - at < static_cast<std::size_t>(length)) return {};
  char32_t code = first & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    const unsigned next = byte_at(text, at + static_cast<std::size_t>(i));
    if ((next & 0xC0) != 0x80) return {};
    code = (code << 6) | (next & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {code, length};
}

std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (byte_at(text, at) < 0x80) {
      ++at;
      continue;
    }
    const int length = decode_utf8(text, at).length;
    if (length == 0) break;
    at += static_cast<std::size_t>(length);
  }
  return at;
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  constexpr unsigned kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[length] | (code >> (6 * (length - 1))));
  for (int i = length - 2; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (!text.empty()) {
      append_utf8(out, kReplacement);
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace fourfold
