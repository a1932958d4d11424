#include "ckpt/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/crc32c.h"
#include "ckpt/file_names.h"

namespace fourfold {
namespace {

using nlohmann::json;

constexpr std::string_view kFormatName = "fourfold checkpoint";
constexpr std::string_view kCrcMember = ",\n\"crc32c\":\"";
constexpr std::string_view kCrcEnd = "\"}\n";
constexpr std::size_t kCrcDigits = 8;
/// Deeper than any manifest nests; keeps a hostile one from making a tall tree.
constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxDims = 16;
constexpr std::size_t kMaxNameLength = 4096;

Error damaged(const std::string& cause) {
  return Error(ErrorKind::kData, "manifest: " + cause, "use another checkpoint");
}

std::string hex(std::uint32_t value) { return fmt::format("{:08x}", value); }

std::uint32_t parse_hex(std::string_view text) {
  std::uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  // One way of writing it: a flipped bit must not turn 'a' into 'A' unseen.
  if (hex(value) != text) throw damaged("a checksum is not eight hexadecimal digits");
  return value;
}

json grid_json(const GridShape& grid) { return {grid.x, grid.y, grid.z, grid.data}; }

json meta_json(const CheckpointMeta& m) {
  return {{"run", m.run_id},
          {"session", m.session},
          {"model", m.model},
          {"model_hash", m.model_hash},
          {"grid", grid_json(m.grid)},
          {"order", m.order},
          {"zero", m.zero},
          {"seed", m.seed},
          {"next_sample", m.next_sample},
          {"intra_op_threads", m.intra_op_threads},
          {"scalars", m.scalars}};
}

json file_json(const FileRecord& f) {
  return {{"name", f.name},
          {"size", f.size},
          {"header_crc32c", hex(f.header_crc)},
          {"file_crc32c", hex(f.file_crc)}};
}

json tensor_json(const ManifestTensor& t) {
  json value = {{"name", t.name},
                {"kind", t.kind},
                {"dtype", dtype_name(t.dtype)},
                {"class", tensor_class_name(t.cls)},
                {"shape", t.shape}};
  if (t.version) value["version"] = t.version->folder();
  return value;
}

json referred_json(const ReferredCheckpoint& r) {
  json files = json::array();
  for (const FileRecord& f : r.files) files.push_back(file_json(f));
  return {{"checkpoint", r.id.folder()},
          {"grid", grid_json(r.grid)},
          {"order", r.order},
          {"zero", r.zero},
          {"files", std::move(files)}};
}

template <class Items, class ToJson>
std::string lines(const Items& items, ToJson to_json) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? ",\n" : "\n") + to_json(item).dump();
  return text + "]";
}

/// A member that must be there, as the type asked for; json's own errors name the mismatch.
template <class T>
T member(const json& object, const char* name) {
  return object.at(name).get<T>();
}

std::int64_t non_negative(const json& object, const char* name) {
  const json& value = object.at(name);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
    throw damaged(fmt::format("'{}' is no size", name));
  }
  return value.get<std::int64_t>();
}

int small_number(const json& object, const char* name) {
  const std::int64_t value = non_negative(object, name);
  if (value > INT32_MAX) throw damaged(fmt::format("'{}' is too large", name));
  return static_cast<int>(value);
}

std::string short_text(const json& object, const char* name) {
  auto text = member<std::string>(object, name);
  if (text.empty() || text.size() > kMaxNameLength) {
    throw damaged(fmt::format("'{}' is empty or too long", name));
  }
  return text;
}

/// A short list of sizes; json's own conversion would take fractions too.
std::vector<std::int64_t> parse_sizes(const json& value) {
  if (!value.is_array() || value.size() > kMaxDims) throw damaged("a shape is no short list");
  std::vector<std::int64_t> sizes;
  for (const json& n : value) {
    if (!n.is_number_unsigned() || n.get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
      throw damaged("a shape holds what is no size");
    }
    sizes.push_back(n.get<std::int64_t>());
  }
  return sizes;
}

GridShape parse_grid(const json& value) {
  const auto sizes = parse_sizes(value);
  if (sizes.size() != 4) throw damaged("the grid has not four axes");
  std::int64_t ranks = 1;
  for (const std::int64_t n : sizes) {
    if (n < 1 || n > INT32_MAX || (ranks *= n) > INT32_MAX) throw damaged("the grid cannot be");
  }
  return GridShape(static_cast<int>(sizes[0]), static_cast<int>(sizes[1]),
                   static_cast<int>(sizes[2]), static_cast<int>(sizes[3]));
}

std::string parse_order(const json& object) {
  auto order = member<std::string>(object, "order");
  if (!Grid::valid_order(order)) throw damaged("the order of the axes cannot be");
  return order;
}

CheckpointMeta parse_meta(const json& value) {
  CheckpointMeta m;
  m.run_id = member<std::string>(value, "run");
  if (value.contains("session")) m.session = member<std::string>(value, "session");
  m.model = member<std::string>(value, "model");
  m.model_hash = member<std::string>(value, "model_hash");
  m.grid = parse_grid(value.at("grid"));
  m.order = parse_order(value);
  m.zero = small_number(value, "zero");
  if (!value.at("seed").is_number_unsigned()) throw damaged("the seed is no number");
  m.seed = member<std::uint64_t>(value, "seed");
  m.next_sample = non_negative(value, "next_sample");
  m.intra_op_threads = small_number(value, "intra_op_threads");
  m.scalars = member<std::map<std::string, std::string>>(value, "scalars");
  return m;
}

FileRecord parse_file(const json& value) {
  FileRecord f;
  f.name = short_text(value, "name");
  if (f.name[0] == '.' || f.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    throw damaged("a file name leaves the folder");
  }
  f.size = non_negative(value, "size");
  f.header_crc = parse_hex(member<std::string>(value, "header_crc32c"));
  f.file_crc = parse_hex(member<std::string>(value, "file_crc32c"));
  return f;
}

CheckpointId parse_id(const json& object, const char* name) {
  const auto id = CheckpointId::parse(member<std::string>(object, name));
  if (!id) throw damaged(fmt::format("'{}' is no checkpoint", name));
  return *id;
}

ReferredCheckpoint parse_referred(const json& value) {
  ReferredCheckpoint r;
  r.id = parse_id(value, "checkpoint");
  r.grid = parse_grid(value.at("grid"));
  r.order = parse_order(value);
  r.zero = small_number(value, "zero");
  for (const json& file : value.at("files")) r.files.push_back(parse_file(file));
  return r;
}

ManifestTensor parse_tensor(const json& value) {
  ManifestTensor t;
  t.name = short_text(value, "name");
  t.kind = short_text(value, "kind");
  const auto dtype = dtype_from_name(member<std::string>(value, "dtype"));
  const auto cls = tensor_class_from_name(member<std::string>(value, "class"));
  if (!dtype || !cls) throw damaged(fmt::format("{}: unknown dtype or class", t.key()));
  t.dtype = *dtype;
  t.cls = *cls;
  t.shape = parse_sizes(value.at("shape"));
  if (!checked_elements(t.shape, dtype_size(t.dtype))) {
    throw damaged(fmt::format("{}: the shape overflows", t.key()));
  }
  if (value.contains("version")) t.version = parse_id(value, "version");
  return t;
}

int format_version(const Manifest& m) {
  const auto rotates = [](const ManifestTensor& t) { return t.version.has_value(); };
  return std::any_of(m.tensors.begin(), m.tensors.end(), rotates) ? kCheckpointVersion : 1;
}

/// Expert files of one grid's ranks, each once, in their order.
void check_expert_files(const ReferredCheckpoint& r) {
  int last = -1;
  for (const FileRecord& f : r.files) {
    const auto rank = rank_of_file(f.name);
    if (!rank || !is_expert_file(f.name) || *rank >= r.grid.size() || *rank <= last) {
      throw damaged(fmt::format("{}: {} is not the next expert file", r.id.folder(), f.name));
    }
    last = *rank;
  }
}

/// That tensors lie in this checkpoint or in older ones, and each of those holds one.
void check_references(const Manifest& m) {
  std::map<CheckpointId, bool> used;
  for (const ReferredCheckpoint& r : m.referred) {
    if (r.id >= m.id) throw damaged(r.id.folder() + " is referred to and not older");
    if (!used.empty() && r.id <= used.rbegin()->first) {
      throw damaged(r.id.folder() + " is referred to twice, or out of order");
    }
    used.emplace_hint(used.end(), r.id, false);
    check_expert_files(r);
  }
  for (const ManifestTensor& t : m.tensors) {
    if (!t.version) continue;
    if (t.cls != TensorClass::kExpert) throw damaged(t.key() + " has a version and is no expert");
    if (*t.version == m.id) continue;
    const auto found = used.find(*t.version);
    if (found == used.end()) {
      throw damaged(
          fmt::format("{} lies in {}, of which nothing is said", t.key(), t.version->folder()));
    }
    found->second = true;
  }
  for (const auto& [id, needed] : used) {
    if (!needed) throw damaged(id.folder() + " is referred to for nothing");
  }
}

Manifest parse_tree(const json& tree) {
  if (member<std::string>(tree, "format") != kFormatName) throw damaged("of another program");
  const int version = small_number(tree, "version");
  if (version < 1 || version > kCheckpointVersion) {
    throw Error(ErrorKind::kData,
                fmt::format("manifest: format version {}, this program reads 1 to {}", version,
                            kCheckpointVersion),
                "use the fourfold that wrote it");
  }
  Manifest m;
  m.meta = parse_meta(tree.at("meta"));
  m.id = {Step(non_negative(tree, "step")), small_number(tree, "incarnation")};
  if (m.id.incarnation > CheckpointId::kMaxIncarnation) throw damaged("the incarnation cannot be");
  m.meta.step = m.id.step;
  std::unordered_set<std::string> seen;
  for (const json& value : tree.at("files")) {
    m.files.push_back(parse_file(value));
    if (!seen.insert(m.files.back().name).second) throw damaged("a file is named twice");
  }
  seen.clear();
  for (const json& value : tree.at("tensors")) {
    m.tensors.push_back(parse_tensor(value));
    const std::string key = m.tensors.back().key();
    if (!seen.insert(key).second) throw damaged(key + " is there twice");
  }
  if (tree.contains("referred")) {
    for (const json& value : tree.at("referred")) m.referred.push_back(parse_referred(value));
  }
  if (version != format_version(m)) throw damaged("holds what another format version holds");
  check_references(m);
  return m;
}

/// How deep brackets nest, those in strings left out. (A callback of the parser could count, too,
/// but with one it takes quadratic time.)
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest;
}

/// The text that the checksum at its end is of.
std::string_view checked_body(std::string_view text) {
  const std::size_t tail = kCrcMember.size() + kCrcDigits + kCrcEnd.size();
  if (text.size() < tail || !text.ends_with(kCrcEnd)) throw damaged("cut off");
  const std::string_view body = text.substr(0, text.size() - tail);
  if (text.substr(body.size(), kCrcMember.size()) != kCrcMember) throw damaged("cut off");
  const auto stated = parse_hex(text.substr(body.size() + kCrcMember.size(), kCrcDigits));
  if (crc32c(body.data(), body.size()) != stated) throw damaged("its checksum is wrong");
  return body;
}

}  // namespace

std::string manifest_text(const Manifest& m) {
  check_references(m);
  std::string text = fmt::format(
      "{{\"format\":\"{}\",\n\"version\":{},\n\"step\":{},\n\"incarnation\":{},\n\"meta\":{},\n",
      kFormatName, format_version(m), m.id.step.value, m.id.incarnation, meta_json(m.meta).dump());
  text += "\"files\":" + lines(m.files, file_json);
  text += ",\n\"tensors\":" + lines(m.tensors, tensor_json);
  if (!m.referred.empty()) text += ",\n\"referred\":" + lines(m.referred, referred_json);
  const std::uint32_t crc = crc32c(text.data(), text.size());
  text += std::string(kCrcMember) + hex(crc) + std::string(kCrcEnd);
  if (static_cast<std::int64_t>(text.size()) > kMaxManifestBytes) {
    throw Error(ErrorKind::kData, fmt::format("a manifest of {} tensors is longer than {} bytes",
                                              m.tensors.size(), kMaxManifestBytes));
  }
  return text;
}

Result<Manifest> parse_manifest(std::string_view text) {
  try {
    checked_body(text);
    if (depth_of(text) > kMaxDepth) return damaged("nested too deep");
    return parse_tree(json::parse(text.begin(), text.end()));
  } catch (const Error& error) {
    return error;
  } catch (const json::exception& error) {
    return damaged(error.what());
  }
}

std::string current_text(const CheckpointId& id) {
  const std::string name = id.folder();
  return name + " " + hex(crc32c(name.data(), name.size())) + "\n";
}

Result<CheckpointId> parse_current(std::string_view text) {
  const auto id = CheckpointId::parse(text.substr(0, text.find(' ')));
  if (!id || text != current_text(*id)) {
    return Error(ErrorKind::kData, "CURRENT is damaged: its checksum is wrong");
  }
  return *id;
}

}  // namespace fourfold
