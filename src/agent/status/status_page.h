// The text of status_page.html, which CMake embeds into the program.
#pragma once

#include <string_view>

namespace offpath::agent {

extern const std::string_view status_page;

}  // namespace offpath::agent
