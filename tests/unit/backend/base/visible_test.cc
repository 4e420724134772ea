#include "backend/base/visible.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

TEST(Visible, LeavesWhatPeopleWrite) {
  for (const char* text : {"", "plain text", "K\u00f6ln \u6f22\u5b57 \U0001f600", "a/b.bin"})
    EXPECT_EQ(text, visible(text));
}

TEST(Visible, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ("a\\x0ab\\x1b[31m\\x7f\\x5c", visible("a\nb\x1b[31m\x7f\\"));
  // A control character of the second set, as UTF-8 and as a byte of its own.
  EXPECT_EQ("\\xc2\\x9b31m", visible("\u009b31m"));
  EXPECT_EQ("a\\x0ab\\x5c\\xc2\\x9b", visible_message(visible("a\nb\\") + "\u009b"));
  EXPECT_EQ("f\\x9b31m", visible("f\x9b"
                                 "31m"));
  EXPECT_EQ("\\xe2\\x80\\xaegpj.exe", visible("\u202egpj.exe"));
  EXPECT_EQ("\\xe2\\x80\\xa8", visible("\u2028"));
}

TEST(Visible, ShowsWhatIsNoText) {
  EXPECT_EQ("\\xff\\xc3", visible("\xff\xc3"));
  EXPECT_EQ("\\xe2\\x82x", visible("\xe2\x82"
                                   "x"));
  EXPECT_EQ("\\xc0\\xaf", visible("\xc0\xaf"));
}

}  // namespace
}  // namespace kvcachefs
