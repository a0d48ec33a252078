# Writes OUT, C++ initialisers {"PATH", "SHA-256"} for the files that the lines of LIST name.
file(STRINGS "${LIST}" paths)
set(text)
foreach(path IN LISTS paths)
    file(SHA256 "${path}" hash)
    string(APPEND text "{R\"(${path})\", \"${hash}\"},\n")
endforeach()
file(WRITE "${OUT}" "${text}")
