# Fails unless README has, as a block of code, exactly the text of EXAMPLE.
file(READ ${README} readme)
file(READ ${EXAMPLE} example)
string(FIND "${readme}" "```cpp\n${example}```\n" found)
if(found EQUAL -1)
  message(FATAL_ERROR "${README} does not show ${EXAMPLE} as it is; copy it into its block of C++ code")
endif()
