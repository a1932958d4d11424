#include "data/text_cut.h"

#include <algorithm>

namespace fourfold {
namespace {

bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

}  // namespace

std::size_t find_text_cut(std::string_view text, std::size_t limit) {
  if (text.size() < 3) return 0;
  // `gap` is the white space between the letters.
  for (std::size_t gap = std::min(limit, text.size() - 2); gap >= 1; --gap) {
    if ((text[gap] != ' ' && text[gap] != '\n') || !is_letter(text[gap - 1]) ||
        !is_letter(text[gap + 1])) {
      continue;
    }
    const std::size_t cut = text[gap] == ' ' ? gap : gap + 1;
    if (cut <= limit) return cut;
  }
  return 0;
}

}  // namespace fourfold
