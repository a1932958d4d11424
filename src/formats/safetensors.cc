#include "formats/safetensors.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "formats/json_sax.h"

namespace fourfold {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeBits {
  std::string_view name;
  int bits;
};

constexpr DTypeBits kDTypes[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"I16", 16},    {"U16", 16},
    {"F16", 16},        {"BF16", 16},       {"I32", 32}, {"U32", 32},    {"F32", 32},
    {"C64", 64},        {"F64", 64},        {"I64", 64}, {"U64", 64},    {"F8_E5M2", 8},
    {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

/// A name as a message can show it: no control characters, not endless.
std::string shown(std::string_view name) {
  constexpr std::size_t kMaxShown = 200;
  std::string text(name.substr(0, kMaxShown));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return name.size() > kMaxShown ? text + "..." : text;
}

/// Bytes of a tensor; none where dtype or shape are impossible, with the cause in `error`.
std::uint64_t tensor_bytes(const SafetensorsEntry& tensor, std::string& error) {
  const int bits = safetensors_dtype_bits(tensor.dtype);
  if (bits == 0) {
    error = fmt::format("unknown dtype '{}'", shown(tensor.dtype));
    return 0;
  }
  std::uint64_t total = static_cast<std::uint64_t>(bits);
  for (const std::int64_t dim : tensor.shape) {
    if (dim < 0 || __builtin_mul_overflow(total, static_cast<std::uint64_t>(dim), &total)) {
      error = "its shape overflows";
      return 0;
    }
  }
  if (total % 8 != 0) error = fmt::format("{} bits are no whole bytes", total);
  return total / 8;
}

class HeaderSax final : public JsonSax {
 public:
  explicit HeaderSax(SafetensorsHeader& header) : header_(header) {}

  bool start_object(std::size_t size) override {
    if (place_ == Place::kTop) return go(Place::kRoot);
    if (place_ == Place::kTensorValue) {
      fields_ = 0;
      return go(Place::kTensor);
    }
    if (place_ == Place::kMetadataValue) return go(Place::kMetadata);
    return JsonSax::start_object(size);
  }

  bool key(std::string& name) override {
    switch (place_) {
      case Place::kRoot:
        return root_key(name);
      case Place::kMetadata:
        metadata_key_ = name;
        if (header_.metadata.contains(name)) return fail(twice("metadata", name));
        return go(Place::kMetadataString);
      case Place::kTensor:
        return tensor_key(name);
      default:
        return JsonSax::key(name);
    }
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadataString) {
      header_.metadata.emplace(std::move(metadata_key_), text);
      return go(Place::kMetadata);
    }
    if (place_ == Place::kDType) {
      tensor_.dtype = text;
      return go(Place::kTensor);
    }
    return JsonSax::string(text);
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) {
        return fail(place() + ": its shape overflows");
      }
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
      return true;
    }
    return JsonSax::number_unsigned(value);
  }

  bool start_array(std::size_t size) override {
    if (place_ == Place::kShapeValue) return go(Place::kShape);
    if (place_ == Place::kOffsetsValue) return go(Place::kOffsets);
    return JsonSax::start_array(size);
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) {
      return fail(place() + ": data_offsets are not two numbers");
    }
    return go(Place::kTensor);
  }

  bool end_object() override {
    if (place_ == Place::kMetadata) return go(Place::kRoot);
    if (place_ == Place::kTensor) return end_tensor();
    return go(Place::kEnd);
  }

 private:
  enum class Place {
    kTop,
    kRoot,
    kMetadataValue,
    kMetadata,
    kMetadataString,
    kTensorValue,
    kTensor,
    kDType,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kEnd,
  };
  static constexpr int kHasDType = 1, kHasShape = 2, kHasOffsets = 4;

  bool go(Place place) {
    place_ = place;
    return true;
  }

  static std::string twice(std::string_view what, std::string_view name) {
    return fmt::format("{} '{}' is there twice", what, shown(name));
  }

  std::string place() const override {
    switch (place_) {
      case Place::kTop:
      case Place::kRoot:
      case Place::kEnd:
        return "header";
      case Place::kMetadataValue:
      case Place::kMetadata:
      case Place::kMetadataString:
        return "__metadata__";
      default:
        return fmt::format("tensor '{}'", shown(tensor_.name));
    }
  }

  bool root_key(const std::string& name) {
    if (!names_.insert(name).second) return fail(twice("tensor", name));
    if (name == kMetadataKey) return go(Place::kMetadataValue);
    tensor_ = SafetensorsEntry{.name = name, .dtype = {}, .shape = {}};
    offsets_ = 0;
    return go(Place::kTensorValue);
  }

  bool tensor_key(const std::string& name) {
    const int field = name == "dtype"          ? kHasDType
                      : name == "shape"        ? kHasShape
                      : name == "data_offsets" ? kHasOffsets
                                               : 0;
    if (field == 0) return fail(fmt::format("{}: unknown member '{}'", place(), shown(name)));
    if (fields_ & field) return fail(place() + ": " + twice("member", name));
    fields_ |= field;
    return go(field == kHasDType   ? Place::kDType
              : field == kHasShape ? Place::kShapeValue
                                   : Place::kOffsetsValue);
  }

  bool end_tensor() {
    if (fields_ != (kHasDType | kHasShape | kHasOffsets)) {
      return fail(place() + ": dtype, shape or data_offsets are missing");
    }
    std::string cause;
    const std::uint64_t bytes = tensor_bytes(tensor_, cause);
    if (!cause.empty()) return fail(place() + ": " + cause);
    if (tensor_.end < tensor_.begin || tensor_.bytes() != bytes) {
      return fail(fmt::format("{}: data_offsets [{}, {}) do not hold the {} bytes of {} [{}]",
                              place(), tensor_.begin, tensor_.end, bytes, tensor_.dtype,
                              fmt::join(tensor_.shape, ", ")));
    }
    header_.tensors.push_back(std::move(tensor_));
    return go(Place::kRoot);
  }

  SafetensorsHeader& header_;
  Place place_ = Place::kTop;
  SafetensorsEntry tensor_;
  int fields_ = 0;
  int offsets_ = 0;
  std::string metadata_key_;
  std::unordered_set<std::string> names_;
};

Error refused(std::string_view file, const std::string& cause) {
  return Error(ErrorKind::kData, fmt::format("{}: {}", file, cause),
               "the file is damaged, cut off, or not a safetensors file; make or fetch it again");
}

/// Sorts by offset; the cause where bytes belong to no tensor or to two.
std::string check_cover(SafetensorsHeader& header) {
  std::ranges::sort(header.tensors, [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (const auto& tensor : header.tensors) {
    if (tensor.begin != expected) {
      return fmt::format("tensor '{}': begins at byte {} of the data where {} was expected ({})",
                         shown(tensor.name), tensor.begin, expected,
                         tensor.begin < expected ? "tensors overlap" : "bytes of no tensor");
    }
    expected = tensor.end;
  }
  if (expected != header.data_bytes) {
    return fmt::format("tensors end at byte {} of the data, the file has {}", expected,
                       header.data_bytes);
  }
  return "";
}

void append_json_string(std::string& out, const std::string& text) {
  try {
    out += nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw Error(ErrorKind::kData, fmt::format("safetensors: '{}' is not UTF-8", shown(text)));
  }
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto it = std::ranges::find(tensors, name, &SafetensorsEntry::name);
  return it == tensors.end() ? nullptr : &*it;
}

int safetensors_dtype_bits(std::string_view dtype) {
  for (const auto& known : kDTypes) {
    if (known.name == dtype) return known.bits;
  }
  return 0;
}

Result<std::uint64_t> parse_safetensors_length(std::span<const std::byte> first_bytes,
                                               std::uint64_t file_bytes, std::string_view file) {
  if (file_bytes < kSafetensorsLengthBytes || first_bytes.size() < kSafetensorsLengthBytes) {
    return refused(file, fmt::format("{} bytes, too short for a safetensors header", file_bytes));
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = (length << 8) | std::to_integer<std::uint64_t>(first_bytes[static_cast<size_t>(i)]);
  }
  if (length > kSafetensorsMaxHeaderBytes || length > file_bytes - kSafetensorsLengthBytes) {
    return refused(file, fmt::format("states a header of {} bytes in a file of {} (limit {})",
                                     length, file_bytes, kSafetensorsMaxHeaderBytes));
  }
  return length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                                   std::string_view file) {
  if (json.empty() || json[0] != '{') return refused(file, "its header does not begin with '{'");
  SafetensorsHeader header;
  header.data_start = kSafetensorsLengthBytes + json.size();
  if (header.data_start > file_bytes) {
    return refused(file,
                   fmt::format("header of {} bytes in a file of {}", json.size(), file_bytes));
  }
  header.data_bytes = file_bytes - header.data_start;
  HeaderSax sax(header);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) return refused(file, sax.error());
  const std::string cause = check_cover(header);
  if (!cause.empty()) return refused(file, cause);
  return header;
}

std::string build_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     std::size_t alignment) {
  std::string out(kSafetensorsLengthBytes, '\0');
  out += '{';
  if (!metadata.empty()) {
    append_json_string(out, std::string(kMetadataKey));
    char separator = ':';
    for (const auto& [key, value] : metadata) {
      out += separator;
      if (separator == ':') out += '{';
      append_json_string(out, key);
      out += ':';
      append_json_string(out, value);
      separator = ',';
    }
    out += '}';
  }
  std::unordered_set<std::string_view> names;
  std::uint64_t offset = 0;
  for (auto& tensor : tensors) {
    std::string cause;
    tensor.begin = offset;
    if (__builtin_add_overflow(offset, tensor_bytes(tensor, cause), &offset)) {
      cause = "the file's size overflows";
    }
    if (!names.insert(tensor.name).second || tensor.name == kMetadataKey) {
      cause = "the name is taken";
    }
    if (!cause.empty()) {
      throw Error(ErrorKind::kData,
                  fmt::format("safetensors: tensor '{}': {}", shown(tensor.name), cause));
    }
    tensor.end = offset;
    if (out.back() != '{') out += ',';
    append_json_string(out, tensor.name);
    out += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.dtype,
                       fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  }
  out += '}';
  while (out.size() % alignment != 0) out += ' ';
  std::uint64_t length = out.size() - kSafetensorsLengthBytes;
  if (length > kSafetensorsMaxHeaderBytes) {
    throw Error(ErrorKind::kData, fmt::format("safetensors: a header of {} bytes; at most {}",
                                              length, kSafetensorsMaxHeaderBytes));
  }
  for (std::size_t i = 0; i < kSafetensorsLengthBytes; ++i, length >>= 8) {
    out[i] = static_cast<char>(length & 0xff);
  }
  return out;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  result.path_ = path;
  auto file = open_for_reading(path);
  if (!file) return file.error();
  result.file_ = std::move(file).value();
  const auto size = file_size(result.file_, path);
  if (!size) return size.error();
  std::array<std::byte, kSafetensorsLengthBytes> first{};
  const std::span used(first.data(), std::min<std::uint64_t>(size.value(), first.size()));
  if (auto done = read_exactly(result.file_, path, 0, used); !done) return done.error();
  const auto length = parse_safetensors_length(used, size.value(), path);
  if (!length) return length.error();
  std::string json(length.value(), '\0');
  const auto json_bytes = std::as_writable_bytes(std::span(json));
  if (auto done = read_exactly(result.file_, path, kSafetensorsLengthBytes, json_bytes); !done) {
    return done.error();
  }
  auto header = parse_safetensors_header(json, size.value(), path);
  if (!header) return header.error();
  result.header_ = std::move(header).value();
  return result;
}

Status SafetensorsFile::read(const SafetensorsEntry& tensor, void* out) const {
  return read_exactly(file_, path_, header_.data_start + tensor.begin,
                      {static_cast<std::byte*>(out), tensor.bytes()});
}

void write_safetensors_file(const std::string& path, std::vector<SafetensorsEntry> tensors,
                            const std::vector<const void*>& data,
                            const std::map<std::string, std::string>& metadata) {
  FF_CHECK(tensors.size() == data.size(), "{} tensors, {} data", tensors.size(), data.size());
  AtomicFile file(path);
  file.write(build_safetensors_header(tensors, metadata));
  for (std::size_t i = 0; i < tensors.size(); ++i) file.write(data[i], tensors[i].bytes());
  file.commit();
}

}  // namespace fourfold
