// A record as a page of HTML with its viewer (viewer/).
#pragma once

#include <string>
#include <string_view>

namespace egret::view {

/// The page without a record, as viewer/ builds it.
std::string_view viewer_page();

/// Error(Parse) that begins with `file` where the text is no record, or one of another version.
void check_record(const std::string& file, std::string_view text);

/// One document that shows the record `text` and loads nothing. Nothing in the record can become
/// markup. Error(Parse) that begins with `file` where the text is no record, or one of another
/// version; one that is cut short is shown as far as it goes.
std::string page_of_record(const std::string& file, std::string_view text);

} // namespace egret::view
