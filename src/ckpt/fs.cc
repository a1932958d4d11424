#include "ckpt/fs.h"

#include <fmt/core.h>

#include <cerrno>
#include <system_error>

#include "base/units.h"

namespace fourfold {
namespace {

std::string hint_of(int system_error) {
  switch (system_error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or keep fewer checkpoints (checkpoint.keep_latest)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check who may write there, or choose another folder with --run-dir";
    case ENOENT:
      return "check the path";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "the disk or its connection fails; look at the system's log";
    default:
      return "";
  }
}

}  // namespace

Error fs_error(int system_error, const std::string& action, const std::string& path,
               std::int64_t wanted, std::int64_t free) {
  std::string message =
      fmt::format("cannot {} {}: {}", action, path, std::generic_category().message(system_error));
  const bool full = system_error == ENOSPC || system_error == EDQUOT;
  if (full && wanted >= 0 && free >= 0) {
    message += fmt::format(" (wanted {}, free {})", format_bytes(wanted), format_bytes(free));
  }
  return Error(ErrorKind::kData, message, hint_of(system_error));
}

std::string read_file(const Fs& fs, const std::string& path, std::int64_t limit) {
  const auto file = fs.open(path);
  const std::int64_t size = file->size();
  if (size > limit) {
    throw Error(ErrorKind::kData,
                fmt::format("{} has {}, more than the {} that such a file may have", path,
                            format_bytes(size), format_bytes(limit)));
  }
  std::string content(static_cast<std::size_t>(size), '\0');
  file->read(0, content.data(), content.size());
  return content;
}

void write_file_atomically(Fs& fs, const std::string& path, const std::string& content) {
  const std::string temporary = path + kTemporarySuffix;
  const auto file = fs.create(temporary);
  file->append(content.data(), content.size());
  file->sync();
  file->close();
  fs.rename(temporary, path);
  fs.sync_directory(parent_path(path));
}

std::string join_path(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.back() == '/' ? directory + name : directory + "/" + name;
}

std::string parent_path(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace fourfold
