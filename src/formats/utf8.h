#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fourfold {

/// A code point and the bytes it takes; 0 bytes where none begins (RFC 3629: no surrogates, no
/// overlong forms, nothing beyond U+10FFFF).
struct Utf8Char {
  char32_t code = 0;
  int length = 0;
};
Utf8Char decode_utf8(std::string_view text, std::size_t at);

/// Bytes of the longest prefix that is UTF-8.
std::size_t utf8_prefix(std::string_view text);

void append_utf8(std::string& out, char32_t code);

/// The text with each byte that is not UTF-8 replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace fourfold
