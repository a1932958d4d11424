# Writes a header with the commit of the sources, if it is another than the last one.
#   cmake -DSOURCE=folder -DOUTPUT=header -P commit_header.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit "unknown (not built from a git checkout)")
endif()
set(text "#pragma once

namespace fourfold::cli {

inline constexpr const char* kBuildCommit = \"${commit}\";

}  // namespace fourfold::cli
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
