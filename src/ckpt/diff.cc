#include "ckpt/diff.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/dtype.h"
#include "base/units.h"
#include "ckpt/commands.h"
#include "ckpt/tensor_reader.h"

namespace fourfold {
namespace {

/// The scalars of a checkpoint that are part of its state.
std::map<std::string, std::string> state_scalars(const Manifest& m) {
  std::map<std::string, std::string> scalars = {{"step", std::to_string(m.id.step.value)},
                                                {"seed", std::to_string(m.meta.seed)},
                                                {"next sample", std::to_string(m.meta.next_sample)},
                                                {"model", m.meta.model},
                                                {"model hash", m.meta.model_hash}};
  for (const auto& [name, value] : m.meta.scalars) scalars[name] = value;
  return scalars;
}

template <class T>
double element(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<double>(value);
}

double element(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF32:
      return element<float>(at);
    case DType::kBF16:
      return bf16_to_float(static_cast<std::uint16_t>(element<std::uint16_t>(at)));
    case DType::kF64:
      return element<double>(at);
    case DType::kI32:
      return element<std::int32_t>(at);
    case DType::kI64:
      return element<std::int64_t>(at);
    case DType::kU8:
      return element<std::uint8_t>(at);
  }
  return 0;
}

/// How two tensors of a dtype differ, whose bits do.
std::string measure(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const auto size = static_cast<std::size_t>(dtype_size(dtype));
  const std::size_t count = a.size() / size;
  std::int64_t differing = 0;
  double largest = 0, norm_a = 0, norm_difference = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte *at_a = a.data() + i * size, *at_b = b.data() + i * size;
    const double value_a = element(dtype, at_a);
    norm_a += value_a * value_a;
    if (std::memcmp(at_a, at_b, size) == 0) continue;
    ++differing;
    const double difference = std::abs(value_a - element(dtype, at_b));
    // A NaN stays: it is larger than all.
    if (!(difference <= largest) && !std::isnan(largest)) largest = difference;
    norm_difference += difference * difference;
  }
  const double relative = norm_difference == 0 ? 0 : std::sqrt(norm_difference / norm_a);
  return fmt::format("{} of {} elements, max |a-b| {:.3g}, relative L2 {:.3g}",
                     format_count(differing), format_count(static_cast<std::int64_t>(count)),
                     largest, relative);
}

std::string shape_text(const ManifestTensor& t) {
  return fmt::format("{} {}", dtype_name(t.dtype), Region::whole(t.shape).name());
}

class Comparison {
 public:
  Comparison(TensorReader& a, TensorReader& b) : a_(a), b_(b) {}

  DiffReport run() {
    header();
    scalars();
    for (const ManifestTensor& t : a_.manifest().tensors) tensor(t);
    for (const ManifestTensor& t : b_.manifest().tensors) {
      if (!a_.find(t.key())) differ(t.key() + " is only in b", tensors_);
    }
    report_.equal = tensors_ == 0 && scalars_ == 0;
    report_.text += report_.equal
                        ? fmt::format("equal: {} tensors, bit by bit\n", equal_)
                        : fmt::format("{} scalars and {} tensors differ, {} tensors are equal\n",
                                      scalars_, tensors_, equal_);
    return std::move(report_);
  }

 private:
  void header() {
    for (auto* side : {&a_, &b_}) {
      const CheckpointMeta& m = side->manifest().meta;
      report_.text += fmt::format("{} {}: run {}, grid {}, ZeRO {}\n", side == &a_ ? "a" : "b",
                                  side->folder(), m.run_id, m.grid.name(), m.zero);
    }
  }

  void differ(const std::string& line, std::int64_t& count) {
    report_.text += "  " + line + "\n";
    ++count;
  }

  void scalars() {
    const auto a = state_scalars(a_.manifest()), b = state_scalars(b_.manifest());
    std::set<std::string> names;
    for (const auto* side : {&a, &b}) {
      for (const auto& [name, value] : *side) names.insert(name);
    }
    const auto value = [](const auto& side, const std::string& name) {
      const auto found = side.find(name);
      return found == side.end() ? "(none)" : found->second;
    };
    for (const std::string& name : names) {
      const std::string in_a = value(a, name), in_b = value(b, name);
      if (in_a != in_b) differ(fmt::format("{}: {} and {}", name, in_a, in_b), scalars_);
    }
  }

  void tensor(const ManifestTensor& t) {
    const ManifestTensor* other = b_.find(t.key());
    if (!other) return differ(t.key() + " is only in a", tensors_);
    if (other->dtype != t.dtype || other->shape != t.shape) {
      return differ(fmt::format("{}: {} and {}", t.key(), shape_text(t), shape_text(*other)),
                    tensors_);
    }
    a_.read(t, data_a_);
    b_.read(*other, data_b_);
    if (data_a_ == data_b_) {
      ++equal_;
    } else {
      differ(fmt::format("{}: {}", t.key(), measure(t.dtype, data_a_, data_b_)), tensors_);
    }
  }

  TensorReader& a_;
  TensorReader& b_;
  std::vector<std::byte> data_a_, data_b_;
  DiffReport report_;
  std::int64_t tensors_ = 0, scalars_ = 0, equal_ = 0;
};

}  // namespace

Result<DiffReport> checkpoint_diff(const Fs& fs, const std::string& a, const std::string& b) try {
  FoundCheckpoint found_a = find_checkpoint(fs, a).value();
  FoundCheckpoint found_b = find_checkpoint(fs, b).value();
  TensorReader reader_a(fs, std::move(found_a.folder), std::move(found_a.manifest));
  TensorReader reader_b(fs, std::move(found_b.folder), std::move(found_b.manifest));
  return Comparison(reader_a, reader_b).run();
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
