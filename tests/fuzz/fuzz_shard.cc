// Any bytes as a file of regions: an error, or tensors that hold what the file holds. Its size and
// the checksum of its header, which the manifest states, are computed from the bytes, as a hostile
// writer would. The first byte says how the others are taken (bits 0 and 1: Form), which tensors
// are wanted (bits 2 to 5) and how large a file may be made (bits 6 and 7).
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "ckpt/reader.h"
#include "ckpt/tensor_file.h"
#include "ckpt/tensor_reader.h"
#include "formats/safetensors.h"
#include "tests/crash/one_file_fs.h"
#include "tests/fuzz/allocation_watch.h"

namespace fourfold {
namespace {

enum class Form : unsigned {
  kRaw,      ///< The file.
  kPatched,  ///< The file, but the checksums of its data are made right.
  kListed,   ///< Lines "F32 w@master[0:2,3:5]": a file of these regions is made.
};
constexpr std::uint64_t kListedBytes = 32 << 10;
/// Where these bits are set, a region may be so large that it is read in several boxes, which is
/// slow.
constexpr unsigned kLargeBits = 0xc0;
constexpr std::uint64_t kLargeBytes = TensorFile::kBoxBytes + (2 << 20);

void require(bool holds) {
  if (!holds) std::abort();
}

/// The file of these tensors and data, with right checksums.
std::string sealed(std::vector<SafetensorsEntry> tensors,
                   std::map<std::string, std::string> metadata, std::string_view data) {
  for (const SafetensorsEntry& t : tensors) {
    metadata["crc32c:" + t.name] = fmt::format("{:08x}", crc32c(data.data() + t.begin, t.bytes()));
  }
  return build_safetensors_header(tensors, metadata).append(data);
}

std::string patched(const std::string& file) {
  const auto length = parse_safetensors_length(std::as_bytes(std::span(file)), file.size(), "f");
  if (!length) return file;
  const auto json = std::string_view(file).substr(kSafetensorsLengthBytes, length.value());
  const auto header = parse_safetensors_header(json, file.size(), "f");
  if (!header) return file;
  const auto data = std::string_view(file).substr(header.value().data_start);
  return sealed(header.value().tensors, header.value().metadata, data);
}

/// A repeated pattern whose length is prime, so that what is moved is seen to be.
std::string any_bytes(std::size_t size) {
  std::string pattern(8191, '\0'), bytes;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    pattern[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  while (bytes.size() < size) bytes.append(pattern, 0, size - bytes.size());
  return bytes;
}

std::string listed(std::string_view text, std::uint64_t limit) try {
  std::vector<SafetensorsEntry> tensors;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto space = line.find(' '), bracket = line.rfind('[');
    if (space == std::string_view::npos) continue;
    SafetensorsEntry tensor;
    tensor.dtype = line.substr(0, space);
    tensor.name = line.substr(space + 1);
    const auto region = Region::parse(line.substr(std::min(bracket, line.size())));
    if (region) tensor.shape = region->shape();
    tensors.push_back(std::move(tensor));
  }
  build_safetensors_header(tensors, {});  // Says where each begins and ends.
  if (tensors.empty() || tensors.back().end > limit) return "";
  const std::string data = any_bytes(tensors.back().end);
  return sealed(std::move(tensors), {}, data);
} catch (const Error&) {
  return "";  // A name twice, a dtype that is none.
}

std::string file_of(unsigned first, const std::string& rest) {
  const bool large = (first & kLargeBits) == kLargeBits;
  switch (static_cast<Form>(first & 3)) {
    case Form::kRaw:
      return rest;
    case Form::kPatched:
      return patched(rest);
    case Form::kListed:
      break;
  }
  return listed(rest, large ? kLargeBytes : kListedBytes);
}

FileRecord record_of(const std::string& file) {
  FileRecord record{"f", static_cast<std::int64_t>(file.size()), 0, 0};
  const auto length = parse_safetensors_length(std::as_bytes(std::span(file)), file.size(), "f");
  if (length) record.header_crc = crc32c(file.data(), kSafetensorsLengthBytes + length.value());
  return record;
}

/// The first `bits` of these: a matrix, a vector of two-byte elements, three dims, a scalar.
std::vector<StateTensor> wanted_tensors(unsigned bits) {
  std::vector<StateTensor> all(4), wanted;
  all[0] = {"w", kKindMaster, DType::kF32, TensorClass::kDense, {4, 6}, {{{1, 4}, {0, 6}}}};
  all[1] = {"h", kKindWeight, DType::kBF16, TensorClass::kExpert, {7}, {{{2, 5}}}};
  all[2] = {
      "c", kKindExpAvg, DType::kF32, TensorClass::kDense, {3, 2, 5}, {{{0, 3}, {1, 2}, {0, 5}}}};
  all[3] = {"s", "counter", DType::kI64, TensorClass::kState, {}, {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (bits >> i & 1) wanted.push_back(all[i]);
  }
  return wanted;
}

/// Where the element of `target` at a flat index lies in the box; -1 where it lies outside.
std::int64_t place_in(const Region& box, const Region& target, std::int64_t flat) {
  std::int64_t offset = 0, stride = 1;
  for (std::size_t d = target.dims.size(); d > 0; --d) {
    const Range& from = target.dims[d - 1];
    const Range& in = box.dims[d - 1];
    const std::int64_t index = from.begin + flat % from.size();
    flat /= from.size();
    if (index < in.begin || index >= in.end) return -1;
    offset += stride * (index - in.begin);
    stride *= in.size();
  }
  return offset;
}

/// The tensor holds, element by element, what the file has, and the file has each once.
void check_held(const TensorFile& file, const StateTensor& tensor) {
  const auto element = static_cast<std::size_t>(dtype_size(tensor.dtype));
  const std::int64_t elements = tensor.region.elements();
  std::int64_t held = 0;
  for (const StoredRegion& stored : file.regions()) {
    if (stored.key != tensor.key()) continue;
    file.read(stored, [&](const Region& box, const std::byte* data) {
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t at = place_in(box, tensor.region, i);
        if (at < 0) continue;
        const auto* mine = static_cast<const std::byte*>(tensor.data) + i * element;
        require(std::memcmp(mine, data + at * element, element) == 0);
        ++held;
      }
    });
  }
  require(held == elements);
}

/// Every region alone, in boxes that lie in it and are no larger than promised.
void read_each(const TensorFile& file) {
  for (const StoredRegion& stored : file.regions()) {
    require(Region::parse(stored.region.name()) == stored.region);
    std::int64_t elements = 0;
    try {
      file.read(stored, [&](const Region& box, const std::byte*) {
        require(box.elements() * dtype_size(stored.dtype) <= TensorFile::kBoxBytes);
        require(intersect(box, stored.region) == box);
        elements += box.elements();
      });
    } catch (const Error&) {
      continue;  // Its checksum is wrong.
    }
    require(elements == stored.region.elements());
  }
}

void read_everything(const std::string& bytes, unsigned wanted_bits) try {
  const OneFileFs fs(bytes);
  Manifest manifest;
  manifest.files.push_back(record_of(bytes));
  const TensorFile file(fs, "", manifest.files[0]);
  read_each(file);

  auto wanted = wanted_tensors(wanted_bits);
  std::vector<std::vector<std::byte>> memory;
  for (StateTensor& t : wanted) {
    memory.emplace_back(static_cast<std::size_t>(t.region.elements() * dtype_size(t.dtype)));
    t.data = memory.back().data();
    manifest.tensors.push_back({t.name, t.kind, t.dtype, t.cls, t.shape});
  }
  read_tensors(fs, "", manifest, wanted);
  for (const StateTensor& t : wanted) {
    require(t.loaded);
    check_held(file, t);
  }
  TensorReader reader(fs, "", manifest);
  for (StateTensor& t : wanted) {
    reader.read(*reader.find(t.key()), memory[0]);
    t.region = Region::whole(t.shape);
    t.data = memory[0].data();
    check_held(file, t);
  }
} catch (const Error&) {
  return;
}

}  // namespace
}  // namespace fourfold

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace fourfold;
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file = file_of(data[0], rest);
  const AllocationWatch watch(64 * file.size() + (64 << 10));
  read_everything(file, data[0] >> 2);
  return 0;
}
