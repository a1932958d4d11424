#pragma once

#include <cstddef>
#include <string_view>

namespace fourfold {

/// The last place at or before `limit` where every pattern of tokenizer_json.h ends a word whatever
/// stands further away, so that text can be cut there and its parts be tokenised apart: before a
/// single space, or after a single line feed, between two ASCII letters. 0 where there is none.
std::size_t find_text_cut(std::string_view text, std::size_t limit);

}  // namespace fourfold
