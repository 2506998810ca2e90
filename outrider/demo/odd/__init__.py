"""The odd pages of the site, each below `/odd/`: what a crawler meets on the web and must survive."""
