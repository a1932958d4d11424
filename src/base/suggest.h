#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

/// Number of insertions, deletions, replacements and swaps of neighbours that make `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate that `word` was probably meant to be: the nearest one, if it is at most a third of
/// the word (at least one edit) away. Empty where nothing is near.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace fourfold
