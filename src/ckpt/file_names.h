#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fourfold {

// Names of the tensor files that one rank writes of a checkpoint.

/// "rank-00007.dense.safetensors" of world rank 7: what every save writes.
std::string dense_file_name(int rank);
/// "rank-00007.expert.safetensors": what rotates, of tensors that the save takes.
std::string expert_file_name(int rank);

/// The rank whose dense or expert file has that name; none where it is no such name.
std::optional<int> rank_of_file(std::string_view name);
/// Whether it is the name of a rank's expert file.
bool is_expert_file(std::string_view name);

}  // namespace fourfold
