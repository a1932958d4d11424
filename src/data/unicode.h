#pragma once

#include <cstddef>
#include <string_view>

namespace fourfold {

/// Unicode's White_Space.
bool is_white_space(char32_t code);

/// The first byte of a character for which text might not be in Normalization Form C (those with
/// the property NFC_Quick_Check No or Maybe, or a combining class); the size of the text where
/// there is none, and the text is in NFC.
std::size_t find_not_surely_nfc(std::string_view text);

}  // namespace fourfold
