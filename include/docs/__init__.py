"""The docs' site: what MkDocs needs beside the pages, to show the repository's other pages and the reference."""
